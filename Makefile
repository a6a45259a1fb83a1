# Two commands matter: `make demo` and `make test`. Both prepare .venv on their own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types contracts tests format clean

demo: $(STAMP)
	$(BIN)/circurve demo

test: lint types contracts tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

# Test circuits are tiny: one thread in each of two processes is faster than two threads in one.
tests: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The environment is rebuilt only when what it is made of has changed.
$(STAMP): pyproject.toml constraints.txt requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation --editable .
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
