# vllm-lmcache-inprocess for arm dut, KV: storage
# proven: commands against vLLM 0.32.0 and LMCache 0.5.6; on CPUs it starts and answers, and has no hits
# vllm: up when http://127.0.0.1:8000/health answers, metrics at http://127.0.0.1:8000/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 LMCACHE_TRACK_USAGE=false LMCACHE_CHUNK_SIZE=256 LMCACHE_LOCAL_CPU=true LMCACHE_MAX_LOCAL_CPU_SIZE=64 LMCACHE_LOCAL_DISK=file:///mnt/kv/ LMCACHE_MAX_LOCAL_DISK_SIZE=10 LMCACHE_EXTRA_CONFIG='{"use_odirect":true}' PROMETHEUS_MULTIPROC_DIR=/tmp/engine /opt/engine/bin/vllm serve MODEL --host=127.0.0.1 --port=8000 --dtype=auto --tensor-parallel-size=1 --no-enable-prefix-caching --enable-prompt-tokens-details --kv-transfer-config '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}' &

# vllm-lmcache-inprocess for arm recompute, KV: recompute
# proven: commands against vLLM 0.32.0 and LMCache 0.5.6; on CPUs it starts and answers, and has no hits
# vllm: up when http://127.0.0.1:8000/health answers, metrics at http://127.0.0.1:8000/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 LMCACHE_TRACK_USAGE=false /opt/engine/bin/vllm serve MODEL --host=127.0.0.1 --port=8000 --dtype=auto --tensor-parallel-size=1 --no-enable-prefix-caching --enable-prompt-tokens-details &

