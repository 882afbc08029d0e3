# Each target sets up what it needs from Python 3.11+, pip and cargo alone.

PYTHON ?= python3
VENV := .venv
# The tests start hundreds of processes, and none should compile the package again.
export PYTHONDONTWRITEBYTECODE :=
BIN := $(VENV)/bin
# One more than there are cores: a test in four waits for processes that it started.
N_WORKERS := $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)' 2>/dev/null)
PYTEST := $(BIN)/python -m pytest -n $(N_WORKERS) --dist worksteal
SOURCES := pyproject.toml Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name 'Cargo.toml' 2>/dev/null)

.PHONY: fuzz help build demo test transcripts test-all test-python test-rust test-order check-wheel coverage test-gpu site wheel release lint lint-python lint-rust format bench clean

help:
	@echo "make demo      simulate photos, compare all of them, open a report (sets everything up)"
	@echo "make test      the quick part of the test suite (sets everything up)"
	@echo "make test TESTS='not exhaustive'   also tests marked slow: what has to pass before a change is merged"
	@echo "make build     .venv with tartan in release mode and every extra but the GPU one"
	@echo "make lint      ruff, mypy, rustfmt, clippy"
	@echo "make test-rust, make test-python   either half of it alone"
	@echo "make test-all  also the slow and exhaustive suites, make test-order, and five minutes of make fuzz"
	@echo "make test-order  the rules of order of messages among ranks, by loom"
	@echo "make transcripts  after a deliberate change: what commands print now into tests/cases/transcripts and the documents"
	@echo "make fuzz      damage, hostile input, simulated ranks, random commands and kills, without end"
	@echo "make check-wheel  install a wheel into an empty environment, run its commands"
	@echo "make coverage  lines and branches that the Python tests reach, those of workers included"
	@echo "make test-gpu  the CUDA suite, of an installed Tartan where $(PYTHON) has one; a missing GPU is a failure"
	@echo "make site      the documents as a site, in target/site; warnings are errors"
	@echo "make wheel     one wheel for any Linux, tried in an empty environment; dist/"
	@echo "make release   wheel, sdist, site, changelog of a version, tried; dist/VERSION, nothing is published"
	@echo "make bench     every benchmark against its peer"

build: $(VENV)/.built

$(VENV)/.built: $(SOURCES)
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "tartan needs Python 3.11 or newer: install python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tartan needs Python 3.11 or newer: $(PYTHON) is older; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "tartan needs pip and venv: install python3-pip and python3-venv" >&2; exit 1; }
	@command -v cargo >/dev/null 2>&1 || { echo "tartan needs Rust: install cargo (1.89 or newer)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "maturin>=1.9,<2"
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet --release --extras dev,cluster
	@touch $@

demo: build
	$(BIN)/tartan demo

# Side by side: neither keeps two cores busy to its end.
# What is run before each commit: 4 minutes on two cores. `.ci/run` has the slow ones too.
TESTS ?= not exhaustive and not slow

test: build
	@$(MAKE) --no-print-directory -j2 test-rust test-python

test-python: build
	$(PYTEST) -m "$(TESTS)"

# One process: the documents show what the cases have become.
transcripts: build
	TARTAN_TRANSCRIPTS=write $(BIN)/python -m pytest -q tests/cases tests/test_docs.py -k transcripts
	git diff --stat -- tests/cases docs

# Loom replaces atomics and fences: a build of its own.
test-order: build
	RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom --package tartan-comm --test loom --quiet

test-all: test-rust test-order site
	$(PYTEST) --hypothesis-profile=thorough
	$(BIN)/python -m fuzz --seconds 300

fuzz: build
	$(BIN)/python -m fuzz

# The loops of SMACOF take minutes to compile: what is tested is what the build has made of them.
test-rust: build
	cargo test --workspace --exclude tartan-python --exclude tartan-smacof --quiet
	cargo test --package tartan-smacof --release --quiet

check-wheel: build
	$(PYTEST) -n0 -m exhaustive tests/packaging

coverage: build
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(N_WORKERS) --dist worksteal -m "not exhaustive"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort=cover

# Where there is no .venv, an installed Tartan is tested as it is, with pytest alone: nothing is compiled or fetched.
test-gpu:
	@if test ! -e $(VENV)/.built && $(PYTHON) -c 'import tartan._native' 2>/dev/null; then python=$(PYTHON); \
	else $(MAKE) --no-print-directory build && python=$(BIN)/python; fi && \
	TARTAN_REQUIRE_GPU=1 PYTHONPATH=$(CURDIR)/tests$${PYTHONPATH:+:$$PYTHONPATH} $$python -m pytest -c /dev/null -o 'markers=gpu: needs a CUDA device' --rootdir . \
	--confcutdir tests/gpu -p no:cacheprovider -m gpu tests/gpu tests/analytics/*/test_*_gpu.py

lint: build
	@$(MAKE) --no-print-directory -j2 lint-rust lint-python

lint-python: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest tartan._native

lint-rust: build
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --release --quiet -- -D warnings

format:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cargo fmt --all

site: build
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html -c docs/site . target/site

wheel:
	PYTHON=$(PYTHON) packaging/build-wheel

release:
	PYTHON=$(PYTHON) packaging/release $(VERSION)

bench: build
	$(BIN)/tartan bench all

clean:
	rm -rf $(VENV) target
