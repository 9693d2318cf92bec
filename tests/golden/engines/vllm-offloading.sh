# vllm-offloading for arm dut, KV: storage
# proven: commands against vLLM 0.32.0; the stock worker copies between GPU and host memory and refuses CPUs
# vllm: up when http://127.0.0.1:8000/health answers, metrics at http://127.0.0.1:8000/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 /opt/engine/bin/vllm serve MODEL --host=127.0.0.1 --port=8000 --dtype=auto --tensor-parallel-size=1 --enable-prompt-tokens-details --kv-transfer-config '{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":{"spec_name":"TieringOffloadingSpec","cpu_bytes_to_use":68719476736,"block_size":256,"secondary_tiers":[{"type":"fs","root_dir":"/mnt/kv","n_read_threads":8,"n_write_threads":8}]}}' &

# vllm-offloading for arm recompute, KV: recompute
# proven: commands against vLLM 0.32.0; the stock worker copies between GPU and host memory and refuses CPUs
# vllm: up when http://127.0.0.1:8000/health answers, metrics at http://127.0.0.1:8000/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 /opt/engine/bin/vllm serve MODEL --host=127.0.0.1 --port=8000 --dtype=auto --tensor-parallel-size=1 --enable-prompt-tokens-details &

