# sglang-hicache-file for arm dut, KV: storage
# proven: commands against SGLang's documentation only
# sglang: up when http://127.0.0.1:8000/health answers, metrics at http://127.0.0.1:8000/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR=/mnt/kv /opt/engine/bin/python -m sglang.launch_server --model-path=MODEL --host=127.0.0.1 --port=8000 --dtype=auto --tp-size=1 --page-size=64 --enable-metrics --enable-cache-report --enable-hierarchical-cache --hicache-size=64 --hicache-write-policy=write_through --hicache-storage-backend=file --hicache-storage-prefetch-policy=wait_complete &

# sglang-hicache-file for arm recompute, KV: recompute
# proven: commands against SGLang's documentation only
# sglang: up when http://127.0.0.1:8000/health answers, metrics at http://127.0.0.1:8000/metrics
PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 /opt/engine/bin/python -m sglang.launch_server --model-path=MODEL --host=127.0.0.1 --port=8000 --dtype=auto --tp-size=1 --page-size=64 --enable-metrics --enable-cache-report &

