# Two commands matter: `make demo` and `make test`. Everything else serves whoever works on Roofmark.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OPENBLAS_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

DEPLOYED := .venv-deployed

.PHONY: demo test test-slow test-cuda test-deployed dev lint types layers docs docs-check check clean

demo: $(VENV)/.ready-demo
	@$(BIN)/roofmark evaluate examples/numba/rms_norm.py --operator rms_norm --shapes 6,48

test: $(VENV)/.ready-test
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup

test-slow: $(VENV)/.ready-test
	$(BIN)/python -m pytest -q -m slow

test-cuda: $(VENV)/.ready-test
	$(BIN)/python -m pytest -q -m cuda

test-deployed: $(VENV)/.ready-dev $(DEPLOYED)/.ready
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -q -m deployed tests/deployed

dev: $(VENV)/.ready-dev

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-dev
	$(BIN)/mypy

layers: $(VENV)/.ready-dev
	$(BIN)/lint-imports

docs: $(VENV)/.ready-dev
	$(BIN)/python docs/generate.py

docs-check: $(VENV)/.ready-dev
	$(BIN)/python docs/generate.py --check

check: test lint types layers docs-check

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Roofmark needs Python 3.11 or newer; name it with: make demo PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' || { echo "this Python has no ensurepip; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[numba]'
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready-demo
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pytest pytest-xdist hypothesis
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready-test
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[numba,triton,nvidia]' import-linter mypy ruff
	@touch $@

$(DEPLOYED)/.ready: tests/deployed/requirements.txt | $(VENV)/.ready-test
	$(BIN)/python -m venv --without-pip $(DEPLOYED)
	$(BIN)/python -m pip --python $(DEPLOYED)/bin/python install --quiet --no-deps --requirement tests/deployed/requirements.txt
	@touch $@

clean:
	rm -rf $(VENV) $(DEPLOYED) build dist
