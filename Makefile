# Moldau: the commands of the house. `make demo` and `make test` set up whatever they need.
.DELETE_ON_ERROR:
.PHONY: demo test check check-types check-style quick-java quick torture properties simulate simulate-mirrors simulate-mutants faults mirror-faults bench dist setup clean

PYTHON ?= $(shell tools/find-python)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LONG := system or torture
# A test that takes longer hangs: the stacks of its threads are printed, and the run ends.
HANGS := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
# All tests of a file run in one process, which sets up once what they share; in the order of the files, since the longest come early.
TWO := --numprocesses 2 --dist loadfile --no-loadscope-reorder
QUICK := $(BIN)/pytest -q $(HANGS) $(TWO) -m "not ($(LONG) or alone)"

# Without it each process that the tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

demo: $(READY)  ## the main job: real events through three data centres, an aggregate, its copy and a table, and the audit of all tiers
	$(BIN)/moldau demo

test: $(READY)  ## everything: static checks, then all tests (long runs at a tenth of their size)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-types check-style quick-java
	$(QUICK)
	$(BIN)/pytest -q $(HANGS) -m alone
	$(BIN)/pytest -q $(HANGS) $(TWO) -m "($(LONG)) and not alone"

check: $(READY)  ## format, lint, types, layers, circles of imports, order of sets
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-types check-style

check-types:
	$(BIN)/mypy

check-style:
	$(BIN)/ruff format --check src tests benchmarks tools examples
	$(BIN)/ruff check src tests benchmarks tools examples
	$(BIN)/python tools/check_sets.py
	$(BIN)/python tools/check_circles.py
	$(BIN)/lint-imports

quick-java:
	PYTHONPATH=tests $(BIN)/python -m support.quick_spark
	PYTHONPATH=tests $(BIN)/python -m support.quick_kafka

quick: $(READY)  ## unit, property and contract tests only
	$(QUICK)

torture: properties  ## the long acceptance runs at full size
	MOLDAU_TORTURE=1 $(BIN)/pytest -q -m "(torture or long) and not drawn"

properties: $(READY)  ## the property tests with fresh examples, at full size; SEED=N draws those of an earlier run
	@seed=$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; echo "property tests with seed $$seed (again: make properties SEED=$$seed)"; \
	MOLDAU_TORTURE=1 $(BIN)/pytest -q -m drawn --hypothesis-seed=$$seed

simulate: $(READY)  ## simulated brokers under faults: SEEDS=N runs from seed FIRST=K on, in two processes
	$(BIN)/python -m moldau.testing.simulation --seeds $(or $(SEEDS),200) --first $(or $(FIRST),1)

simulate-mirrors: $(READY)  ## two clusters and a mirror under faults: SEEDS=N runs from seed FIRST=K on
	$(BIN)/python -m moldau.testing.simulation --mirrors --seeds $(or $(SEEDS),200) --first $(or $(FIRST),1)

simulate-mutants: $(READY)  ## planted bugs, and how many seeds it takes to find each
	$(BIN)/python -m moldau.testing.simulation --mutants
	$(BIN)/python -m moldau.testing.simulation --mutants --mirrors

faults: $(READY)  ## workloads under every kind of fault on clusters of real processes: the tables of docs/faults.md; SECONDS=N for each cell
	PYTHONPATH=tests $(BIN)/python -m support.fault_table --seconds $(or $(SECONDS),8) --page docs/faults.md

mirror-faults: $(READY)  ## mirrors of both modes while they and their clusters are killed and paused: a table of docs/faults.md
	PYTHONPATH=tests $(BIN)/python -m support.mirror_fault_table --page docs/faults.md

bench: $(READY)  ## measurements beside Apache Kafka in the same run; JSON lines
	$(BIN)/python benchmarks/run.py

dist:  ## a wheel and a source distribution in dist/; needs nothing else of the set-up
	rm -rf dist
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt hatchling
	$(BIN)/python -m hatchling build --directory dist

setup: $(READY)  ## virtual environment with pinned versions, and system parts

$(READY): pyproject.toml constraints.txt tools/system-parts
	sh tools/system-parts
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:  ## what the commands above made, data included
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-data demo-data-loss demo-data-small demo-data-small-loss out dist
