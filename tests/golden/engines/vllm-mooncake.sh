# vllm-mooncake for arm dut, KV: storage
# proven: vLLM 0.32.0 and mooncake-transfer-engine-non-cuda 0.3.13.post1 on CPUs, over TCP on one machine
cat >/tmp/engine/mooncake.json <<'END'
{
 "mode": "standalone-store",
 "metadata_server": "P2PHANDSHAKE",
 "master_server_address": "127.0.0.1:8003",
 "protocol": "tcp",
 "device_name": "",
 "global_segment_size": 0,
 "local_buffer_size": "64MB",
 "enable_offload": true
}
END
# master: up when http://127.0.0.1:8002/metrics answers, metrics at http://127.0.0.1:8002/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 /opt/engine/bin/mooncake_master --rpc_address=127.0.0.1 --rpc_port=8003 --metrics_port=8002 --enable_offload=true &
# client: up when http://127.0.0.1:8000/health answers
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR=file_per_key_storage_backend MOONCAKE_OFFLOAD_FILE_STORAGE_PATH=/mnt/kv MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS=1 MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES=1099511627776 /opt/engine/bin/mooncake_client --master_server_address=127.0.0.1:8003 --host=127.0.0.1 --port=8001 --protocol=tcp --device_names= --global_segment_size=68719476736 --enable_offload=true --metadata_server=P2PHANDSHAKE --enable_http_server=true --http_port=8000 &
# vllm: up when http://127.0.0.1:8004/health answers, metrics at http://127.0.0.1:8004/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 MOONCAKE_CONFIG_PATH=/tmp/engine/mooncake.json /opt/engine/bin/vllm serve MODEL --host=127.0.0.1 --port=8004 --dtype=auto --tensor-parallel-size=1 --block-size=128 --no-enable-prefix-caching --enable-prompt-tokens-details --kv-transfer-config '{"kv_connector":"MooncakeStoreConnector","kv_role":"kv_both"}' &

# vllm-mooncake for arm recompute, KV: recompute
# proven: vLLM 0.32.0 and mooncake-transfer-engine-non-cuda 0.3.13.post1 on CPUs, over TCP on one machine
# vllm: up when http://127.0.0.1:8004/health answers, metrics at http://127.0.0.1:8004/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 /opt/engine/bin/vllm serve MODEL --host=127.0.0.1 --port=8004 --dtype=auto --tensor-parallel-size=1 --block-size=128 --no-enable-prefix-caching --enable-prompt-tokens-details &

