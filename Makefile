# Everything a fresh machine needs is set up by the first target that runs: only Python, git and a C compiler are assumed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Thousands of tests start real processes. One that needs its second try stops no build, and is a defect to be mended.
ONCE_MORE = echo "NOT AT THE FIRST TRY: what failed above is run once more, and counts only if it fails again"

# The lock holds hatchling too, so the package is built with what is locked.
.PHONY: run test quick nightly test-harness compat check lock format lint types layers coverage unlocked bench clean help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml requirements.lock hatch_build.py $(wildcard native/*.[ch])
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lock: ## choose versions anew, within the bounds of pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv<1'
	@$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url --group dev \
	  --custom-compile-command 'make lock' pyproject.toml -o requirements.lock

run: $(READY) ## start the bus, let two agents talk, then show live events until Ctrl-C
	@$(BIN)/python examples/first_exchange.py

test: $(READY) ## run every test
	@$(BIN)/python -m pytest -q

quick: $(READY) ## run the tests of the packages that do no input or output, in a few seconds
	@$(BIN)/python -m pytest -q tests/model tests/routing tests/rooms tests/harness tests/log/test_fold.py \
	  --ignore=tests/harness/real --ignore=tests/harness/test_stand_in.py

# Each finding is kept as an explicit example of its test, so that `make test` repeats it from then on.
nightly: SEED := $(or $(SEED),$(shell date +%s))
nightly: $(READY) ## run every property test with new seeds and many examples; SEED=N repeats a run
	@echo "repeat this run with: make nightly SEED=$(SEED)"
	@$(BIN)/python -m pytest -q -m hypothesis --hypothesis-profile=deep --hypothesis-seed=$(SEED) || { \
	  echo "repeat this run with: make nightly SEED=$(SEED)"; exit 1; }

check: $(READY) format lint types layers coverage ## all that the build checks

format: $(READY)
	@$(BIN)/ruff format --check .

lint: $(READY)
	@$(BIN)/ruff check .

types: $(READY)
	@$(BIN)/mypy

layers: $(READY)
	@$(BIN)/lint-imports --no-cache

coverage: $(READY) ## the tests, with the branch coverage that is promised
	@rm -rf .run/check && $(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q -o cache_dir=.run/check || { $(ONCE_MORE); \
	  $(BIN)/coverage run -m pytest -q -o cache_dir=.run/check --last-failed --last-failed-no-failures none; }
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under=100 --skip-covered \
	  --include='src/palaver/model/*,src/palaver/routing/*,src/palaver/rooms/*,src/palaver/log/*,src/palaver/links/*,src/palaver/broker/*,src/palaver/delivery/*' \
	  --omit='src/palaver/links/process_darwin.py'

unlocked: ## install the newest versions our bounds allow, without the lock file, and run the tests that need no server
	@rm -rf .venv-unlocked && $(PYTHON) -m venv .venv-unlocked
	@.venv-unlocked/bin/python -m pip install --quiet --disable-pip-version-check . pytest pytest-asyncio hypothesis
	@.venv-unlocked/bin/pal --version
	@.venv-unlocked/bin/python -m pytest -q tests/model tests/routing tests/log/test_fold.py
	@rm -rf .venv-unlocked

test-harness: $(READY) ## run the four real harnesses against a scripted model; the first time installs them (1.6 GB)
	@$(BIN)/python -m tests.harness.real.install
	@rm -rf .run/harness
	@PALAVER_HARNESS=1 $(BIN)/python -m pytest -q -o cache_dir=.run/harness --durations=15 tests/harness/real || { \
	  $(ONCE_MORE); \
	  PALAVER_HARNESS=1 $(BIN)/python -m pytest -q -o cache_dir=.run/harness --last-failed \
	    --last-failed-no-failures none tests/harness/real; }

compat: $(READY) ## try the harnesses on the PATH and write docs/compatibility.md
	@$(BIN)/python -m palaver.cli.doctor.record .

bench: $(READY) ## measure against hcom in the same run and write docs/performance.md
	@$(BIN)/python bench/run.py

clean: ## remove what was built
	@rm -rf $(VENV) .venv-unlocked build dist .run .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
