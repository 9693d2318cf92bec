# A thin front: the same works by hand with pip and the kvbench command (README.md).
VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin

# Every engine is a process of its own; without bytecode each compiles kvbench anew, a third of its start.
unexport PYTHONDONTWRITEBYTECODE

# From the distribution: fio drives the storage profiles, the others are weasyprint's (PDF).
PACKAGES := fio libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core
INSTALL  := apt-get install -y --no-install-recommends

# vLLM and LMCache, with the model and its KV: outside of the checkout, and kept for the next time.
VLLM   ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kvbench-vllm

# A virtual machine with NVMe drives of its own: its image, kept for the next time.
VM ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kvbench-vm

# Tests that measure nothing, and so may share the processors.
PURE := tests/judge tests/report tests/sim tests/store

.PHONY: gate gate-vllm test test-slow test-vllm test-vm setup packages clean

gate: setup  ## set up, run G3 on this machine's disk as a demonstration, and show the verdict
	@$(BIN)/kvbench run gate G3 --quick; code=$$?; echo "exit code of kvbench: $$code"; exit $$code

gate-vllm: setup  ## the same on vLLM with LMCache on CPUs: sets it up in $(VLLM), 3 GB; 40 minutes
	@$(BIN)/python scripts/vllm_on_cpu.py $(VLLM) kvbench-runs/vllm-$$(date +%Y-%m-%dT%H-%M-%S); \
	code=$$?; echo "exit code of kvbench: $$code"; exit $$code

test: setup-dev  ## set up and run the tests
	$(BIN)/ruff format --check kvbench tests benchmarks scripts
	$(BIN)/ruff check kvbench tests benchmarks scripts
	$(BIN)/mypy
	$(BIN)/pytest -n 2 $(PURE)
	$(BIN)/pytest $(PURE:%=--ignore=%)

test-slow: setup-dev  ## the tests that need minutes: real gates, killed and resumed
	$(BIN)/pytest -m slow

test-vllm: setup-dev  ## the gate on vLLM, with a connector that stores nothing, and with KV that is noise
	KVBENCH_VLLM=$(VLLM) $(BIN)/pytest -m slow -s tests/engine/test_vllm.py

test-vm: PACKAGES += mmdebstrap qemu-system-x86
test-vm: setup-dev  ## G1 and G3 on emulated NVMe drives, raw and over TCP: makes a machine in $(VM), 1.5 GB; as root
	rm -rf $(VM)/wheel
	$(BIN)/python -m build --wheel --outdir $(VM)/wheel . >/dev/null
	PYTHON=$(BIN)/python scripts/vm/image.sh $(VM)/image $(VM)/wheel/*.whl
	KVBENCH_VM=$(VM) $(BIN)/pytest -m slow tests/vm

setup: $(VENV)/.ready
setup-dev: $(VENV)/.ready-dev

$(VENV)/.ready: pyproject.toml | packages
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/.ready-dev: pyproject.toml | $(VENV)/.ready
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

# As root, missing packages are installed; otherwise the exact line to type is printed.
packages:
	@missing=""; \
	for package in $(PACKAGES); do dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; done; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(INSTALL) $$missing; \
	else \
		echo "missing packages; type: sudo $(INSTALL)$$missing" >&2; exit 4; \
	fi

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
