# Moldau: the commands of the house. `make demo` and `make test` set up whatever they need.
.DELETE_ON_ERROR:
.PHONY: demo test check quick torture bench setup clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

demo: $(READY)  ## the main job: the whole pipeline over real events, and the audit of it
	$(BIN)/moldau demo

test: check  ## everything: static checks, then all tests (long runs at a tenth of their size)
	$(BIN)/pytest -q -m "not system and not torture"
	$(BIN)/pytest -q -m "system or torture"

check: $(READY)  ## format, lint, types, layers
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports

quick: $(READY)  ## unit, property and contract tests only
	$(BIN)/pytest -q -m "not system and not torture"

torture: $(READY)  ## the long acceptance runs at full size
	MOLDAU_TORTURE=1 $(BIN)/pytest -q -m torture

bench: $(READY)  ## measurements beside Apache Kafka in the same run; JSON lines
	$(BIN)/python benchmarks/run.py

setup: $(READY)  ## virtual environment with pinned versions, and system parts

$(READY): pyproject.toml constraints.txt tools/system-parts
	sh tools/system-parts
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:  ## what the commands above made, data included
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-data demo-data-loss out
