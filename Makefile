# `make serve` and `make test` make .venv; its `lazuli` is the command.
# Override with, for example: make serve PYTHON=python3.12 TORCH=2.12.0 ARGS="--http-port 9000"

PYTHON ?= python3
VENV ?= .venv
# Installed first and by exact version: an index that has a CPU build of just this version is then used.
TORCH ?= 2.13.0
ARGS ?=

RUN_EXTRAS := engine,default-model,server,gateway
DEV_EXTRAS := $(RUN_EXTRAS),otel,dev
# Those of the Dockerfile.
IMAGE_EXTRAS := engine default-model gateway otel
PIP := $(VENV)/bin/python -m pip -q --disable-pip-version-check
# A stamp newer than pyproject.toml says that the environment is complete; its name carries the torch version.
RUN_STAMP := $(VENV)/.installed-torch-$(TORCH)
DEV_STAMP := $(VENV)/.installed-torch-$(TORCH)-dev

# The machine's own Python where no .venv was made, or where PYTHON was given: it is the one that has a torch for the GPU.
GPU_PYTHON = $(if $(filter file,$(origin PYTHON)),$(or $(wildcard $(VENV)/bin/python),$(PYTHON)),$(PYTHON))

.PHONY: help serve doctor test test-gpu fuzz soak check format report bundle pins audit env dev-env clean
.DEFAULT_GOAL := help

help:  ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

serve: env  ## Start the server on the default model; ARGS="..." goes to `lazuli serve`
	@$(VENV)/bin/lazuli serve $(ARGS)

doctor: env  ## Say what is missing on this machine
	@$(VENV)/bin/lazuli doctor

test: dev-env  ## Run all tests (CPU; starts real servers); ARGS="..." goes to pytest
	$(VENV)/bin/python -m pytest $(ARGS)

test-gpu:  ## Run the tests that need a CUDA device, with .venv if there is one, else with PYTHON; needs no network
	PYTHONPATH=backend_src:client:perf$${PYTHONPATH:+:$$PYTHONPATH} $(GPU_PYTHON) -m pytest tests/gpu tests/unit/lazuli/triton_kernels $(ARGS)

fuzz: dev-env  ## Send 20,000 malformed requests to a real server; ARGS="..." goes to pytest
	LAZULI_FUZZ=$${LAZULI_FUZZ:-20000} $(VENV)/bin/python -m pytest tests/server/test_fuzz.py -s $(ARGS)

soak: dev-env  ## Load a server for 20 minutes, and see that it stays right and holds no more; ARGS="--machine NAME ..."
	$(VENV)/bin/python perf/soak.py $(ARGS)

check: dev-env  ## Format, lint, types, unit tests, and that hot paths take no more work
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m pytest tests/unit
	$(VENV)/bin/python perf/guard.py

format: dev-env  ## Rewrite the sources in the project's format
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bundle:  ## Pack server, packages and source for a GPU machine without a network; ARGS="..." as in perf/bundle.sh --help
	perf/bundle.sh $(ARGS)

report: dev-env  ## Render the performance report from perf/results
	$(VENV)/bin/python perf/report.py $(ARGS)

pins: dev-env  ## Write docker/constraints.txt: the packages of the image, as they are in .venv
	@sed -i '/^[^#]/d' docker/constraints.txt
	@$(VENV)/bin/python docker/requirements.py --pins pyproject.toml $(IMAGE_EXTRAS) >> docker/constraints.txt

audit: dev-env  ## Look the packages of the image up among known faults; needs PyPI's own server
	echo torch==$(TORCH) | cat docker/constraints.txt - | $(VENV)/bin/pip-audit --strict --disable-pip --no-deps -r /dev/stdin

env: $(RUN_STAMP)  ## Make .venv with what serving needs

dev-env: $(DEV_STAMP)  ## Make .venv with what developing needs

clean:  ## Remove the environment and the caches of the tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name '*.egg-info' -prune -exec rm -rf {} +

$(RUN_STAMP): pyproject.toml
	@echo "Making $(VENV) (the first time takes a few minutes) ..."
	@rm -f $(VENV)/.installed-*
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install torch==$(TORCH)
	@$(PIP) install -e '.[$(RUN_EXTRAS)]'
	@touch $@

$(DEV_STAMP): $(RUN_STAMP)
	@echo "Adding the developers' tools to $(VENV) ..."
	@$(PIP) install -e '.[$(DEV_EXTRAS)]'
	@touch $@
