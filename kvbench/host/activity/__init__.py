"""What happens on a machine while something is measured there: counters, caches, pressure."""
