# One command each: `make bench` and `make test` set everything up on a fresh machine (Python 3.11+, make).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROCESSES ?= 2
# One thread a process: the tests run several processes, and spinning BLAS threads only disturb one another.
export OPENBLAS_NUM_THREADS ?= 1
# Tests start a hundred processes: byte code that is kept spares each of them compiling the package, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup bench bench-gpu test test-blas versions prove docs mutants fuzz lines snapshots best check lint types wheel sbom lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

setup: $(STAMP)  ## make the virtual environment .venv

$(STAMP): pyproject.toml studies/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement constraints.txt
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable ./studies
	@touch $(STAMP)
	@echo "Installed. Activate the environment: . $(BIN)/activate"

bench: $(STAMP)  ## run every suite at small size: table and report
	$(BIN)/optim bench --processes $(PROCESSES)

bench-gpu: $(STAMP)  ## every kernel at the size of a GPU of 40 GB, as a share of its speed (install JAX's jax[cuda] into .venv before)
	$(BIN)/optim bench kernels --study roofline --size full

test: $(STAMP)  ## the tests, 25 fresh random examples a property
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile

test-blas: $(STAMP)  ## the tests under OpenBLAS' kernels of other processors
	@for kernel in Haswell Zen Prescott; do echo "OPENBLAS_CORETYPE=$$kernel"; \
	  OPENBLAS_CORETYPE=$$kernel $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile || exit 1; done

# An environment of its own for each set and each Python: `make versions SET=newest PYTHON=python3.13`.
SET ?= oldest
OTHER = .venv-$(SET)-$(notdir $(PYTHON))
versions:  ## the tests with other versions of all packages, with any PYTHON: SET=oldest that is promised, or SET=newest
	@test -f constraints-$(SET).txt || { echo "SET is oldest or newest, not $(SET)"; exit 2; }
	@test -x $(OTHER)/bin/python || $(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-$(SET).txt --editable '.[dev]' --editable ./studies
	$(OTHER)/bin/python -m pytest --numprocesses $(PROCESSES) --dist loadfile

# The first and the last Python that is promised, where they are found: on the path, or among pyenv's.
PYTHONS = $(foreach one,3.11 3.13,$(firstword $(shell for python in python$(one) $(HOME)/.pyenv/versions/$(one).*/bin/python$(one); \
  do "$$python" -c "import venv, ensurepip" 2>/dev/null && command -v "$$python"; done)))

docs: $(STAMP)  ## the site, in build/site/index.html: notebooks are run once and kept; no network, no warning
	$(BIN)/python -m sphinx --builder html --jobs auto --fail-on-warning --keep-going --quiet --doctree-dir build/doctrees docs build/site

# Of the sources as committed: a stopped run goes on. What is changed but not committed is proven from the beginning.
PROOF = .proof/$(shell git describe --always --abbrev=40 --dirty=-changed 2>/dev/null || echo unknown-changed)
prove: $(STAMP)  ## all tests, the long ones and every notebook too, 200 random examples a property: before a release
	@rm -f .proof/*-changed
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile --hypothesis-profile=prove -m 'prove or not prove' \
	  --resume=$(PROOF) || test $$? -eq 5  # 5: all has passed before
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile --jaxtyping-packages=optim.kernels,beartype.beartype tests/kernels
	$(MAKE) test-blas
	for python in $(or $(PYTHONS),$(PYTHON)); do \
	  $(MAKE) versions SET=oldest PYTHON=$$python && $(MAKE) versions SET=newest PYTHON=$$python || exit 1; done
	$(MAKE) fuzz

lines: $(STAMP)  ## count the lines of code, room by room
	$(BIN)/python tests/architecture/code_lines.py

fuzz: $(STAMP)  ## spoil 20,000 inputs and see that each ends well; goes on where it stopped
	$(BIN)/python tests/fuzz/campaign.py --folder .fuzz

snapshots: $(STAMP)  ## write tests/snapshots anew, what users see of small inputs: `git diff` shows what a change does to them
	@rm -f tests/snapshots/*.txt
	SNAPSHOTS=renew $(BIN)/python -m pytest -q -m 'prove or not prove' tests/snapshots

best: $(STAMP)  ## keep what is better in FILES, solutions of references, than in the best known that ship
	$(BIN)/python -m tests.models.keep_best_known $(FILES)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

wheel: $(STAMP)  ## build wheel and source archive, and install each into a fresh environment of every supported Python found
	$(BIN)/python -m pytest -m 'prove or not prove' tests/packaging

check: lint types test  ## what CI runs

# Tools of a release have environments of their own: what they need is nobody else's affair.
.venv-%/bin/python:
	$(PYTHON) -m venv .venv-$*

# Mutations are made in a copy, so that a stopped run leaves none in the sources.
MUTANTS = build/mutants
mutants: .venv-mutants/bin/python $(STAMP)  ## mutation testing: change MODULE in all small ways, one at a time; report the changes that TESTS miss
	@test -n "$(MODULE)" -a -n "$(TESTS)" || { echo "usage: make mutants MODULE=optim/core/stopping.py TESTS=tests/core/test_stopping.py"; exit 2; }
	.venv-mutants/bin/python -m pip install --quiet --disable-pip-version-check 'cosmic-ray>=8.4,<9'
	@mkdir -p $(MUTANTS)
	git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference --target-directory=$(MUTANTS)
	printf '[cosmic-ray]\nmodule-path = ["$(MODULE)"]\ntimeout = 300.0\ntest-command = "%s -m pytest -q -x -p no:cacheprovider $(TESTS)"\n[cosmic-ray.distributor]\nname = "local"\n' \
	  $(abspath $(BIN)/python) > $(MUTANTS)/session.toml
	cd $(MUTANTS) && PATH="$(abspath .venv-mutants/bin):$$PATH" && cosmic-ray init --force session.toml session.sqlite && \
	  cosmic-ray baseline session.toml && cosmic-ray exec session.toml session.sqlite && cr-report --surviving-only --show-diff session.sqlite

SBOM ?= dist/sbom.json
sbom: .venv-sbom/bin/python  ## a release's list of parts (CycloneDX): what it installs with all that users add, with versions and licences
	.venv-sbom/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8'
	$(PYTHON) -m venv --clear .venv-released
	@grep -vE '^ ' constraints.txt | sed 's/ \\$$//' > .venv-released/constraints.txt
	.venv-released/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-released/constraints.txt '.[pandas,plot,dask,learn,testing,yaml]'
	.venv-released/bin/python -m pip uninstall --quiet --yes pip setuptools
	@mkdir -p $(dir $(SBOM))
	.venv-sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible --validate \
	  --output-format JSON --output-file $(SBOM) .venv-released/bin/python
	rm -r .venv-released

lock: .venv-lock/bin/python  ## renew constraints.txt, pins and hashes, where pyproject.toml asks for it; with UPGRADE=--upgrade all of it
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lock/bin/uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
	  --python-version 3.11 --extra dev $(UPGRADE) pyproject.toml --output-file constraints.txt

clean:  ## remove the environment and caches
	rm -rf $(VENV) .venv-* .pytest_cache .hypothesis .mypy_cache .ruff_cache dist build
