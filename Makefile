# Two commands matter: `make demo` and `make test`. Both prepare .venv on their own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types contracts tests coverage explore docs wheel gpu-check stress format web clean

demo: $(STAMP)
	$(BIN)/circurve demo

# Types take one core for most of a minute: the tests begin beside them.
test: $(STAMP)
	$(MAKE) --no-print-directory --jobs=2 types lint contracts tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/repo-review --show err .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

# Test circuits are tiny: one thread in each of two processes is faster than two threads in one. Each process takes one
# half of the tests in their order, so that a module's fixtures are made once, and then what the other has left. Tests
# start the program as a process of its own: compiled modules are kept, even where the environment asks for none.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

tests: $(STAMP)
	$(PYTEST) --durations 15

# The same tests, and an error if they reach less of the package than pyproject.toml demands.
coverage: $(STAMP)
	$(PYTEST) --cov --cov-report=term

# The same tests on other generated cases than those of the last run.
explore: $(STAMP)
	$(PYTEST) --hypothesis-profile random

# The site, with all tutorials executed. A warning is an error: a broken link, a name that does not exist, a failing cell.
docs: $(STAMP)
	PYTHONPATH=src $(BIN)/python -m sphinx -q -b html -j 2 -W --keep-going docs docs/_build/html

# The wheel that would be published, and an import of the core from it.
wheel: $(STAMP)
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	PYTHONPATH=$$(echo dist/*.whl) $(BIN)/python -c "import circurve; circurve.fit; print(circurve.__file__)"

# On a machine with a GPU. GPU_PYTHON names an environment of your own; DEBD a folder with the data sets, PYJUICE a
# folder or wheel of PyJuice to compare with.
GPU_PYTHON ?=
GPU_RUN = $(or $(GPU_PYTHON),$(BIN)/python)
GPU_DATA = $(if $(DEBD),--data-dir $(DEBD))
GPU_PEER = $(if $(PYJUICE),--pyjuice $(PYJUICE))

gpu-check: $(if $(GPU_PYTHON),,$(STAMP))
	PYTHONPATH=src $(GPU_RUN) -m pytest tests/test_gpu_arithmetic.py tests/engine/test_backend_contract.py tests/engine/test_extreme_inputs.py tests/engine/test_fused.py tests/learning/cuda tests/learning/test_graph_steps.py tests/learning/test_parallel_graph_steps.py tests/learning/test_checkpoints_cuda.py tests/learning/test_checkpoints_within_epochs.py tests/learning/test_failures.py
	PYTHONPATH=src $(GPU_RUN) -m pytest -m gpu tests
	PYTHONPATH=src $(GPU_RUN) benchmarks/first_fit.py
	PYTHONPATH=src $(GPU_RUN) benchmarks/gpu_precision.py $(GPU_DATA)
	PYTHONPATH=src $(GPU_RUN) benchmarks/curvature_overhead.py --name curvature_overhead_cuda
	PYTHONPATH=src $(GPU_RUN) benchmarks/method_cost.py --fleets 1,16,64 --name method_cost_cuda
	PYTHONPATH=src $(GPU_RUN) benchmarks/gpu_em.py --only nltcs,plants,dna,bbc $(GPU_DATA) $(GPU_PEER)
	PYTHONPATH=src $(GPU_RUN) benchmarks/gpu_em.py --only large-512 --batches 512,4096 --fleets 1 --name gpu_em_large $(GPU_PEER)
	PYTHONPATH=src $(GPU_RUN) benchmarks/gpu_em.py --only large-256 --batches 512,4096 --fleets 1 --name gpu_em_large_256 $(GPU_PEER)
	PYTHONPATH=src $(GPU_RUN) benchmarks/roofline.py --only nltcs,plants,bbc,large-256,large-512 --batches 200,4096 --fleets 1 $(GPU_DATA)
	PYTHONPATH=src $(GPU_RUN) benchmarks/roofline.py --only large-512 --batches 4096 --fleets 1 --precisions tf32 --seconds 2 --name roofline_512
	PYTHONPATH=src $(GPU_RUN) benchmarks/roofline.py --only nltcs,plants,bbc --batches 200,4096 --fleets 16,64 --name roofline_fleets $(GPU_DATA)
	PYTHONPATH=src $(GPU_RUN) benchmarks/fleet_limits.py $(GPU_DATA)
	PYTHONPATH=src $(GPU_RUN) benchmarks/leaves.py --name leaves_cuda $(GPU_DATA)
	PYTHONPATH=src $(GPU_RUN) benchmarks/mixture.py --units 32,100 --name mixture_cuda $(GPU_DATA)
	PYTHONPATH=src $(GPU_RUN) benchmarks/queries.py --device cuda --repeats 15 $(GPU_PEER)
	PYTHONPATH=src $(GPU_RUN) benchmarks/scaling.py
	PYTHONPATH=src $(GPU_RUN) benchmarks/parallel_gpu.py
	PYTHONPATH=src $(GPU_RUN) benchmarks/cost_model.py --device cuda
	PYTHONPATH=src $(GPU_RUN) benchmarks/forecast.py

# Hours: tests on other generated cases, an hour of damaged files for all loaders together, files of full size, servers
# that fail, equality of results, killed workers, 100 faults, and data larger than memory. Records go to stress/results and
# benchmarks/results, and from there into docs/reliability.md.
stress: explore
	PYTHONPATH=src OMP_NUM_THREADS=1 nice $(BIN)/python stress/fuzz.py --seconds 3600
	PYTHONPATH=src OMP_NUM_THREADS=1 nice $(BIN)/python stress/hostile.py
	PYTHONPATH=src OMP_NUM_THREADS=1 nice $(BIN)/python stress/servers.py
	PYTHONPATH=src nice $(BIN)/python stress/equality.py
	PYTHONPATH=src OMP_NUM_THREADS=1 nice $(BIN)/python stress/workers.py --moments 100
	PYTHONPATH=src OMP_NUM_THREADS=1 nice $(BIN)/python benchmarks/kill_resume.py --moments 100 --early 12
	PYTHONPATH=src OMP_NUM_THREADS=1 nice $(BIN)/python benchmarks/kill_resume.py --moments 60 --early 0 --within --name kill_resume_within
	PYTHONPATH=src nice $(BIN)/python benchmarks/streams.py --rows 20000000 --units 16 --turns 1
	PYTHONPATH=src nice $(BIN)/python benchmarks/wide_tree.py
	$(BIN)/python docs/make_reliability.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The script of report pages, bundled from web/ with node and npm; the result is committed.
web:
	cd web && npm ci --no-audit --no-fund && npm run build

# The environment is rebuilt only when what it is made of has changed.
$(STAMP): pyproject.toml constraints.txt requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation --editable .
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
