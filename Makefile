# Everything runs in .venv/, which the first target makes. Nothing here reads standard input or needs a terminal.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/ready
# The tests start thousands of processes: each uses what another has compiled, whatever the caller's shell asks for.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test stores suites types check format bench docs deep mutants lock clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

# An environment knows its own path, so one that was moved with the checkout counts as missing; and what the mount lacked, so that
# one whose machine has lost or gained libfuse since is set up again.
ifneq ($(strip $(shell cat $(READY) 2>/dev/null)),$(strip $(CURDIR) $(shell scripts/fuse.sh)))
.PHONY: $(READY)
endif
$(READY): $(wildcard requirements/*.lock) pyproject.toml scripts/setup.sh scripts/fuse.sh
	@PYTHON="$(PYTHON)" scripts/setup.sh

setup: $(READY) ## make .venv/ from the lock, with budwood in it
	@:

demo: setup ## one database, from one edge to another, with the figures
	@$(RUN) examples/demo.py

# -P: the checkout's folders are budwood's rooms, not modules of their own. Four run at a time, since most wait for
# processes; each share is a run of neighbours, which use the same node, or session of Spark.
test: setup ## every test
	@$(RUN) -P -m pytest $(or $(ARGS),-n 4 --dist worksteal)

# Every server that can be had must be there: nothing is left out.
stores: setup ## the suite of stores, against servers that others make (needs npm)
	@scripts/stores.sh
	@BUDWOOD_STORES=$(VENV)/stores $(RUN) -P -m pytest -n 2 --dist loadfile tests/integration/test_store_conformance.py \
		tests/integration/test_doctor_store.py

types: setup ## both type checkers
	@PYTHON=$(RUN) scripts/types.sh

# Types are checked beside the first tests: each leaves the processors idle where the other doesn't.
check: setup ## what CI runs: format, lint, types, tests
	$(RUN) -m ruff format --check
	$(RUN) -m ruff check
	@$(MAKE) --no-print-directory -j 2 types test

format: setup ## format, and mend what the linter can
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format

bench: setup ## tables of measurements; JSON under bench/results/
	@$(RUN) -m bench

docs: setup ## the site, and the manual page, of docs/: docs/_build/
	@$(RUN) -P -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@$(RUN) -P -m sphinx -q -W --keep-going -b man docs docs/_build/man
	@echo "docs: docs/_build/html/index.html, docs/_build/man/budwood.1"

encrypted: setup ## the suites of Spark's types and of the mount, over encrypted volumes
	@TEST_ENCRYPTED=yes $(RUN) -P -m pytest -n 2 --dist loadfile tests/integration/test_spark_zoo.py tests/integration/test_mount_*.py \
		tests/property/test_mount_*.py tests/integration/test_lite.py tests/integration/test_edge_sync.py

deep: setup ## every test by hypothesis under random seeds, DEEP_SECONDS=120 for each file
	@PYTHON=$(RUN) scripts/deep.sh $(DEEP_SECONDS)

suites: setup ## suites that others made, over volumes: apsw's, CPython's of sqlite3, Django's
	@PYTHON=$(RUN) scripts/suites.sh $(ARGS)

mutants: setup ## break the code in known ways; the tests must notice each
	@$(RUN) -m tests.mutants

lock: setup ## pin versions and hashes anew from pyproject.toml
	@scripts/lock.sh $(UPGRADE)

clean: ## remove everything that was made here
	rm -rf $(VENV) build dist docs/_build docs/reference/_verbs.md *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis bench/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
