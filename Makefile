# Two commands do all set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CHECK_PYTHON := $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "karat needs Python 3.11 or newer; found " + sys.version.split()[0] + "; run: make PYTHON=python3.12")'

.PHONY: demo test test-slow test-all test-lowest lint format lock audit release bench bench-history frameworks bench-gradients bench-gradients-history soak soak-index hunts soak-faults soak-kills fuzz site clean

# Every package at the version and with the hashes of requirements/dev.txt; karat itself from here.
$(STAMP): pyproject.toml requirements/dev.txt
	$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# An environment of its own, with what users install: the development environment takes minutes.
DEMO := build/demo-venv
$(DEMO)/.installed: pyproject.toml
	$(CHECK_PYTHON)
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile .
	touch $@

demo: $(DEMO)/.installed
	@rm -rf build/demo
	@PYTHONPATH=src $(DEMO)/bin/python -m karat demo build/demo

# Many tests start karat as a process; where bytecode is not kept, each of them compiles it anew.
unexport PYTHONDONTWRITEBYTECODE

# `make test ROOM=hunt` runs the tests of one room and of its commands.
TESTS = $(if $(ROOM),$(wildcard tests/$(ROOM)*) $(wildcard tests/cli/test_$(ROOM)*),)
PYTEST = $(BIN)/python -m pytest -n auto --dist loadgroup $(TESTS) $(ARGS)

# Five tests of six, of every room; the sixth takes two thirds of the time and is marked `slow`.
test: $(STAMP)
	$(PYTEST) -m "not slow"
	@echo "Quick tests of $(or $(ROOM),every room). \`make test-all\` also runs the slow ones."

test-slow: $(STAMP)
	$(PYTEST) -m slow

test-all: $(STAMP)
	$(PYTEST)

# The quick tests with the oldest version of everything that pyproject.toml names: are its lower bounds true?
LOWEST := build/lowest
test-lowest: $(STAMP)
	@mkdir -p build
	$(BIN)/uv pip compile pyproject.toml --extra test --resolution lowest-direct --override requirements/lowest.txt --quiet --no-header -o $(LOWEST).txt
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --override requirements/lowest.txt -r $(LOWEST).txt
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps -e .
	$(LOWEST)/bin/python -m pytest -n auto --dist loadgroup $(TESTS) $(ARGS) -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# requirements/dev.txt from pyproject.toml; `make lock ARGS=--upgrade` takes the newest of everything.
lock:
	@$(BIN)/uv --version >/dev/null || { echo 'expected uv in $(BIN); run: $(PYTHON) -m venv $(VENV) && $(BIN)/pip install uv'; exit 2; }
	$(BIN)/uv pip compile pyproject.toml --extra dev --group build --universal --generate-hashes --no-emit-index-url --quiet \
	    --custom-compile-command 'make lock' $(ARGS) -o requirements/dev.txt

# The documentation as a website; a page that is in no menu, or a link that leads nowhere, is an error.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The locked versions against the advisories of osv.dev; `make audit ADVISORIES=all.zip` needs no network.
audit: $(STAMP)
	$(BIN)/python tools/audit.py $(ADVISORIES)

# Wheel, sdist, SBOM and provenance of HEAD in build/release; built twice, and the same byte for byte. SIGN=KEY signs them.
release: $(STAMP)
	$(BIN)/python tools/release.py $(if $(SIGN),--sign $(SIGN))

bench: $(STAMP)
	$(BIN)/python benchmarks/diff_speed.py
	$(BIN)/python benchmarks/bundle_compare.py
	$(BIN)/python benchmarks/capture_overhead.py
	$(BIN)/python benchmarks/small_cases.py --cases 1000
	$(BIN)/python benchmarks/refresh_download.py
	$(BIN)/python benchmarks/history_speed.py --share 0.025

# Every golden commit of a clone, `make bench-history CLONE=../Megatron-LM`; without one, of histories made for the purpose.
bench-history: $(STAMP)
	$(BIN)/python benchmarks/golden_history.py $(or $(CLONE),--generate 40) $(ARGS)
	$(if $(CLONE),,$(BIN)/python benchmarks/golden_history.py --generate 40 --preset pytorch-dynamo $(ARGS))

# These need frameworks that karat does not.
frameworks: $(STAMP)
	@$(BIN)/python -c 'import sys; from importlib.util import find_spec; all(map(find_spec, ("torch", "jax", "paddle"))) or sys.exit("expected torch, jax and paddle beside karat; run: $(BIN)/pip install torch jax paddlepaddle")'

bench-gradients: frameworks
	$(BIN)/python benchmarks/gradcheck_library.py
	$(BIN)/python benchmarks/gradcheck_cost.py

# Faults of old releases, each in an environment of its own: found there, and mended in a later one.
bench-gradients-history: $(STAMP)
	$(BIN)/python benchmarks/gradient_history.py

soak: frameworks
	$(BIN)/python benchmarks/gradcheck_library.py --seeds 50

# The hunt of docs/hunt-packages.md, over what the real package index has.
soak-index: $(STAMP)
	$(BIN)/python benchmarks/hunt_packages.py
	$(BIN)/python benchmarks/hunt_split.py

# Documented regressions of released packages, found from the outside (docs/hunts-history.md); `make hunts HUNTS=scipy_nnls` for one.
hunts: $(STAMP)
	$(BIN)/python benchmarks/hunt_history.py $(HUNTS)

# Every reader of what others wrote, for TIME seconds; what is found is printed with the command that repeats it.
TIME ?= 60
fuzz: $(STAMP)
	OPENBLAS_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m fuzz --time $(TIME) $(ARGS)

# Bundles in every form with FAULTS planted into them; each is noticed, or harmless by a rule.
FAULTS ?= 1000
soak-faults: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m faults.planted --faults $(FAULTS) $(ARGS)

# Every command that writes, killed at random moments, alone and beside another; nothing may be lost.
KILLS ?= 300
soak-kills: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m faults.kills --kills $(KILLS) $(ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
