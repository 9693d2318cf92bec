# vllm-lmcache-mp for arm dut, KV: storage
# proven: vLLM 0.32.0 and LMCache 0.5.6 on CPUs, tensor parallelism 1, one file a page without a header
# lmcache: up when http://127.0.0.1:8000/ answers, metrics at http://127.0.0.1:8000/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 LMCACHE_TRACK_USAGE=false /opt/engine/bin/lmcache server --host=127.0.0.1 --port=8001 --http-host=127.0.0.1 --http-port=8000 --prometheus-port=8002 --chunk-size=256 --max-workers=2 --supported-transfer-mode=auto --shm-name=kvbench_kv --l1-size-gb=64 --no-l1-use-lazy --eviction-policy=LRU --metrics-sample-rate=1.0 --l2-adapter '{"type":"fs","base_path":"/mnt/kv","use_odirect":true}' &
# vllm: up when http://127.0.0.1:8003/health answers, metrics at http://127.0.0.1:8003/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 LMCACHE_TRACK_USAGE=false /opt/engine/bin/vllm serve MODEL --host=127.0.0.1 --port=8003 --dtype=auto --tensor-parallel-size=1 --no-enable-prefix-caching --enable-prompt-tokens-details --kv-transfer-config '{"kv_connector":"LMCacheMPConnector","kv_connector_module_path":"lmcache.integration.vllm.lmcache_mp_connector","kv_role":"kv_both","kv_connector_extra_config":{"lmcache.mp.host":"tcp://127.0.0.1","lmcache.mp.port":8001}}' &

# vllm-lmcache-mp for arm recompute, KV: recompute
# proven: vLLM 0.32.0 and LMCache 0.5.6 on CPUs, tensor parallelism 1, one file a page without a header
# vllm: up when http://127.0.0.1:8003/health answers, metrics at http://127.0.0.1:8003/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 LMCACHE_TRACK_USAGE=false /opt/engine/bin/vllm serve MODEL --host=127.0.0.1 --port=8003 --dtype=auto --tensor-parallel-size=1 --no-enable-prefix-caching --enable-prompt-tokens-details &

