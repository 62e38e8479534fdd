# `make bench` and `make test` need only make and Python 3.11 or later; they set up the environment themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROCESSES ?= 2
# One BLAS thread per process, because the tests run several processes, whose BLAS threads would slow each other down.
export OPENBLAS_NUM_THREADS ?= 1
# Tests start a hundred processes. Write byte code, even if the shell forbids it, so that they need not compile the package.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup bench bench-gpu test test-blas versions prove docs mutants fuzz lines snapshots best check lint types wheel sbom lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

setup: $(STAMP)  ## create the virtual environment .venv

$(STAMP): pyproject.toml studies/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement constraints.txt
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable ./studies
	@touch $(STAMP)
	@echo "Installed. Activate the environment: . $(BIN)/activate"

bench: $(STAMP)  ## run all benchmark suites at size small; print a table and write a report
	$(BIN)/optim bench --processes $(PROCESSES)

bench-gpu: $(STAMP)  ## measure every kernel on a GPU of 40 GB, relative to the GPU's speed in copies and matrix products (first install jax[cuda12] into .venv)
	$(BIN)/optim bench kernels --study roofline --size full

test: $(STAMP)  ## run the tests, with 25 new random examples per property
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile

test-blas: $(STAMP)  ## run the tests with OpenBLAS' kernels for other processors
	@for kernel in Haswell Zen Prescott; do echo "OPENBLAS_CORETYPE=$$kernel"; \
	  OPENBLAS_CORETYPE=$$kernel $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile || exit 1; done

# A separate environment for each set and each Python: `make versions SET=newest PYTHON=python3.13`.
SET ?= oldest
OTHER = .venv-$(SET)-$(notdir $(PYTHON))
versions:  ## run the tests with the oldest supported versions of all packages (SET=newest: the newest), with any PYTHON
	@test -f constraints-$(SET).txt || { echo "SET is oldest or newest, not $(SET)"; exit 2; }
	@test -x $(OTHER)/bin/python || $(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-$(SET).txt --editable '.[dev]' --editable ./studies
	$(OTHER)/bin/python -m pytest --numprocesses $(PROCESSES) --dist loadfile

# The oldest and the newest supported Python, if installed on the path or by pyenv.
PYTHONS = $(foreach one,3.11 3.13,$(firstword $(shell for python in python$(one) $(HOME)/.pyenv/versions/$(one).*/bin/python$(one); \
  do "$$python" -c "import venv, ensurepip" 2>/dev/null && command -v "$$python"; done)))

docs: $(STAMP)  ## build the site in build/site/index.html; run each notebook once and cache it; use no network; fail on a warning
	$(BIN)/python -m sphinx --builder html --jobs auto --fail-on-warning --keep-going --quiet --doctree-dir build/doctrees docs build/site

# The name of the commit, so that a stopped run of committed sources resumes. With uncommitted changes, all tests run again.
PROOF = .proof/$(shell git describe --always --abbrev=40 --dirty=-changed 2>/dev/null || echo unknown-changed)
prove: $(STAMP)  ## run all tests before a release: also slow ones and every notebook, with 200 random examples per property
	@rm -f .proof/*-changed
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile --hypothesis-profile=prove -m 'prove or not prove' \
	  --resume=$(PROOF) || test $$? -eq 5  # 5: an earlier run passed all tests
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile --jaxtyping-packages=optim.kernels,beartype.beartype tests/kernels
	$(MAKE) test-blas
	for python in $(or $(PYTHONS),$(PYTHON)); do \
	  $(MAKE) versions SET=oldest PYTHON=$$python && $(MAKE) versions SET=newest PYTHON=$$python || exit 1; done
	$(MAKE) fuzz

lines: $(STAMP)  ## count the lines of code per package
	$(BIN)/python tests/architecture/code_lines.py

fuzz: $(STAMP)  ## give 20,000 damaged inputs to the commands and check how each command ends; a stopped run resumes
	$(BIN)/python tests/fuzz/campaign.py --folder .fuzz

snapshots: $(STAMP)  ## write the outputs of small inputs to tests/snapshots again; `git diff` shows how a change affects them
	@rm -f tests/snapshots/*.txt
	SNAPSHOTS=renew $(BIN)/python -m pytest -q -m 'prove or not prove' tests/snapshots

best: $(STAMP)  ## replace the shipped plans and bounds of reference instances by better ones in the solution files FILES
	$(BIN)/python -m tests.models.keep_best_known $(FILES)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

wheel: $(STAMP)  ## build wheel and source archive, and install each in a new environment of every supported Python that is installed
	$(BIN)/python -m pytest -m 'prove or not prove' tests/packaging

check: lint types test  ## what CI runs

# Each tool of a release has a separate environment, so that its dependencies do not affect the others.
.venv-%/bin/python:
	$(PYTHON) -m venv .venv-$*

# The mutations change a copy, so that a stopped run leaves none in the sources.
MUTANTS = build/mutants
mutants: .venv-mutants/bin/python $(STAMP)  ## test the tests: make small changes to MODULE, one at a time; report the changes that TESTS do not detect
	@test -n "$(MODULE)" -a -n "$(TESTS)" || { echo "usage: make mutants MODULE=optim/core/stopping.py TESTS=tests/core/test_stopping.py"; exit 2; }
	.venv-mutants/bin/python -m pip install --quiet --disable-pip-version-check 'cosmic-ray>=8.4,<9'
	@mkdir -p $(MUTANTS)
	git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference --target-directory=$(MUTANTS)
	printf '[cosmic-ray]\nmodule-path = ["$(MODULE)"]\ntimeout = 300.0\ntest-command = "%s -m pytest -q -x -p no:cacheprovider $(TESTS)"\n[cosmic-ray.distributor]\nname = "local"\n' \
	  $(abspath $(BIN)/python) > $(MUTANTS)/session.toml
	cd $(MUTANTS) && PATH="$(abspath .venv-mutants/bin):$$PATH" && cosmic-ray init --force session.toml session.sqlite && \
	  cosmic-ray baseline session.toml && cosmic-ray exec session.toml session.sqlite && cr-report --surviving-only --show-diff session.sqlite

SBOM ?= dist/sbom.json
sbom: .venv-sbom/bin/python  ## list the packages that a release and its extras for users install, with versions and licences (CycloneDX)
	.venv-sbom/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8'
	$(PYTHON) -m venv --clear .venv-released
	@grep -vE '^ ' constraints.txt | sed 's/ \\$$//' > .venv-released/constraints.txt
	.venv-released/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-released/constraints.txt '.[pandas,plot,dask,learn,testing,yaml]'
	.venv-released/bin/python -m pip uninstall --quiet --yes pip setuptools
	@mkdir -p $(dir $(SBOM))
	.venv-sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible --validate \
	  --output-format JSON --output-file $(SBOM) .venv-released/bin/python
	rm -r .venv-released

lock: .venv-lock/bin/python  ## renew the pins and hashes in constraints.txt that pyproject.toml requires; with UPGRADE=--upgrade, all of them
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lock/bin/uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
	  --python-version 3.11 --extra dev $(UPGRADE) pyproject.toml --output-file constraints.txt

clean:  ## remove the environment and caches
	rm -rf $(VENV) .venv-* .pytest_cache .hypothesis .mypy_cache .ruff_cache dist build
