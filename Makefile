# A thin front: the same works by hand with pip and the kvbench command (README.md).
.PHONY: test
VENV := .venv
PYTHON ?= python3

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet -e '.[dev]'
	touch $@

test: $(VENV)/.ready
	$(VENV)/bin/ruff format --check kvbench tests
	$(VENV)/bin/ruff check kvbench tests
	$(VENV)/bin/mypy
	$(VENV)/bin/pytest
