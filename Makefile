# `make demo` and `make test` set up everything they need in .venv on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0

.PHONY: demo test test-slow test-all mutants fuzz lint clean

# Analysis alone, as a user without a GPU installs it.
$(VENV)/.analysis: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

# The tests run the kernels in Triton's interpreter, so they need torch and triton too.
$(VENV)/.dev: $(VENV)/.analysis
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[gpu,dev]'
	touch $@

demo: $(VENV)/.analysis
	$(BIN)/profkit diff traces/dcp-combine/eager traces/dcp-combine/fused

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# About six minutes on two cores once .venv is there.
test: lint
	$(BIN)/python -m pytest -n auto -m 'not slow'
	$(BIN)/python -m pytest -n auto tests/kernels

# The tests that start many processes: repeated, interrupted and compiling captures.
test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto -m slow

# Ten times as many mutants of recorded runs as the tests make; about ten minutes.
mutants: $(VENV)/.dev
	MUTANTS=5000 $(BIN)/python -m pytest -n auto -rP tests/analysis/test_mutants.py

# Damaged files of every format through every command; about an hour. FUZZ_FROM=N begins at another one.
FUZZ ?= 20000
fuzz: $(VENV)/.dev
	FUZZ=$(FUZZ) $(BIN)/python -m pytest -n auto tests/readers/test_fuzz.py

test-all: test test-slow

clean:
	rm -rf $(VENV)
