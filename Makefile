# Two commands for a new machine:  make quickstart   make test
# Everything is installed into VENV; nothing outside it is touched.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# `make test CONSTRAINTS=.ci/constraints.txt` pins what continuous integration pins.
CONSTRAINTS ?= .ci/constraints.txt

.PHONY: help quickstart test test-fast test-dist test-gpu lint docs clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(BIN)/installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) torch
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e '.[mpi,report,cluster,test,browser,dev,docs]'
	touch $@

quickstart: $(BIN)/installed ## Set up and tune Open MPI's collectives on this machine, no GPU needed
	$(BIN)/collbench sweep sweeps/quickstart.toml --nproc-per-node 4

test: $(BIN)/installed lint ## Set up and pass every test this machine can run
	$(BIN)/python -m pytest -q -n auto -m "not dist and not gpu and not slow"
	$(BIN)/python -m pytest -q -m "(dist or slow) and not gpu"

test-fast: $(BIN)/installed ## The fast lane: under a minute, no processes, no torch
	$(BIN)/python -m pytest -q -n auto -m "not dist and not gpu and not slow"

test-dist: $(BIN)/installed ## Real processes: MPI, Gloo, torchrun
	$(BIN)/python -m pytest -q -m "(dist or slow) and not gpu"

test-gpu: ## On a GPU machine, in the environment that has its torch: a missing GPU fails
	COLLBENCH_EXPECT_GPUS=$${COLLBENCH_EXPECT_GPUS:-2} $(PYTHON) -m pytest -q -m gpu

lint: $(BIN)/installed ## ruff and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(BIN)/installed ## Build the documentation site into site/
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict

clean: ## Remove what the targets above made
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache
