# One command for each thing one does here; `make help` lists them.
# Everything happens in .venv, which is made from requirements-dev.lock when needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Written last, so that an interrupted installation is done again.
READY := $(VENV)/.ready
CODE := $(wildcard jobstore migrations tests demo benchmarks)
# A process for each processor; ARGS="-n 0" for one, with the output as it comes.
PYTEST := $(BIN)/python -m pytest -n auto

.DEFAULT_GOAL := help
.PHONY: help demo test quick lint types architecture migration-lint expected-schema check soak bench bench-full screenshots \
	format lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | \
	  awk -F ':.*## ' '{ printf "  make %-16s %s\n", $$1, $$2 }'

demo: $(READY) ## Run a real document through the store (FILE=… for your own PDF)
	@$(BIN)/python -m demo $(if $(value FILE),'$(subst ','\'',$(value FILE))')

# pytest's summary stays the last thing that is printed: CI and people read that.
test: $(READY) ## Run all tests; those on PostgreSQL again on a second major version
	@env -u JOBSTORE_TEST_PG_BIN $(PYTEST) $(ARGS)
	@second="$$($(BIN)/python -m tests.second_postgres)" || exit 1; \
	  test -z "$$second" || env -u JOBSTORE_TEST_DSN JOBSTORE_TEST_PG_BIN="$$second" \
	    $(PYTEST) -m postgres $(ARGS)

quick: $(READY) ## Run the tests without the slow ones
	@$(PYTEST) -m "not slow" $(ARGS)

lint: $(READY) ## Check style and formatting
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)

types: $(READY) ## Check types, strictly
	@$(BIN)/mypy $(filter-out migrations,$(CODE))

architecture: $(READY) ## Check who imports whom
	@$(BIN)/lint-imports --no-logo --no-cache

migration-lint: $(READY) ## Check that the migrations are safe to run on a busy database
	@mkdir -p build
	@$(BIN)/jobstore migrate sql > build/migrations.sql
	@$(BIN)/squawk build/migrations.sql

expected-schema: $(READY) ## Renew what `jobstore migrate check` expects, after a new revision
	@$(BIN)/python -m tests.migrations.write_expected

check: lint types architecture migration-lint test ## Do all that CI does

soak: $(READY) ## Put faults on a running system, mixed at random (MINUTES=30 SEED=…)
	@$(BIN)/python -m tests.faults.soak --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

bench: $(READY) ## Measure against raw SQL, a few minutes (ARGS="--dsn … single batches")
	@$(BIN)/python -m benchmarks $(ARGS)

bench-full: $(READY) ## The same with large tables and a held snapshot, about an hour
	@$(BIN)/python -m benchmarks --full $(ARGS)

screenshots: $(READY) ## Renew the pictures of the page in docs/images (needs Chromium)
	@$(BIN)/python -m tests.web.screenshots docs/images

format: $(READY) ## Format the code and sort the imports
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

# No index and no path gets into the lock: it holds for whoever installs from it.
# Compiled on the oldest Python we support, whose needs include those of the others.
lock: ## Renew requirements-dev.lock (UPGRADE=1 for the newest versions)
	@rm -rf build/lock && $(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet pip-tools
	@build/lock/bin/pip-compile --quiet --all-extras --generate-hashes --allow-unsafe \
	  --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-find-links --no-emit-options $(if $(UPGRADE),--upgrade) \
	  --output-file requirements-dev.lock pyproject.toml
	@{ echo '# Development versions, pinned with hashes for Python 3.11 and later: `make lock`.'; \
	   cat requirements-dev.lock; } > build/lock/renewed && mv build/lock/renewed requirements-dev.lock

clean: ## Remove what was built; data folders are left alone
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "jobstore needs Python 3.11 or later; $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; \
	  exit 1; }
	@echo "Making $(VENV) …"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "On Debian and Ubuntu this needs: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes --requirement requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $@
