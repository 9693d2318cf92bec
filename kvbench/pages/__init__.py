"""KV page workloads: the probes `kv.pages` and `kv.churn`, and what they share."""
