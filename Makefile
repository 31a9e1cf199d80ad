# The first target that runs sets up everything else: a fresh machine needs only Python, git and a C compiler.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# The C client with sanitizers, see native-check.
SANITIZED := build/pal-sanitized
VERSION   := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/palaver/version.py)

# A prefix for each test command. Only .ci/run sets it, to run failed tests once more.
AGAIN ?=

# Most tests wait for a process, so several workers finish sooner than one. WORKERS=0 runs one test after the other.
# Tests with real harnesses run one after the other unless HARNESS_WORKERS is set.
WORKERS ?= 8
HARNESS_WORKERS ?= 0
PYTEST  := -m pytest -q -n $(WORKERS) --dist worksteal

# Each worker loads every test file, and would compile it again if this variable kept it from storing the result.
unexport PYTHONDONTWRITEBYTECODE

# Packages with full branch coverage, each by the tests in the folder with its name.
CORE       := protocol state domain log identity broker delivery
CORE_FILES := src/palaver/protocol/*,src/palaver/state/*,src/palaver/domain/*,src/palaver/log/*
CORE_FILES := $(CORE_FILES),src/palaver/identity/*,src/palaver/broker/*,src/palaver/delivery/*

.PHONY: native-check run picture pictures test test-processes quick nightly test-harness docs compat check dist lock format lint types layers english coverage unlocked bench clean help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml requirements.lock hatch_build.py tools/set_up.py $(wildcard native/*.[ch])
	@$(PYTHON) tools/set_up.py $(VENV)
	@touch $@

lock: ## update the locked versions, within the bounds of pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv<1'
	@$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url --group dev \
	  --custom-compile-command 'make lock' pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url --group dist \
	  --custom-compile-command 'make lock' -o tools/dist.lock

run: $(READY) ## show a bus with two agents that talk, in a temporary home, then live events until Ctrl-C
	@$(BIN)/python examples/first_exchange.py

picture: $(READY) ## record the pictures of the README: its story, the dashboard, and how a person answers there
	@PYTHONPATH=. $(BIN)/python -m tools.picture
	@PYTHONPATH=. $(BIN)/python -m tools.recording

pictures: $(READY) ## keep the pictures of the dashboard as they are drawn now; look at each changed one
	@$(BIN)/python -m pytest -q -n 0 tests/app/ui/test_pictures.py --snapshot-update

test: $(READY) ## run every test
	@$(AGAIN) $(BIN)/python $(PYTEST)

test-processes: $(READY) ## run the tests that start clients and commands from this folder
	@$(AGAIN) $(BIN)/python $(PYTEST) tests/app tests/client tests/clients tests/docs tests/examples

# Two plain runs at the same time: pytest-xdist would load every test file three times and report each result twice.
QUICK := $(BIN)/python -m pytest -q -p no:xdist -p no:anyio -p no:cacheprovider
quick: $(READY) ## run the tests of the packages that do no input or output, in a few seconds
	@mkdir -p build
	@$(QUICK) tests/protocol tests/state --ignore=tests/protocol/test_redact.py >build/quick.txt 2>&1 & first=$$!; \
	  $(QUICK) tests/protocol/test_redact.py tests/domain tests/harness \
	  --ignore=tests/harness/real --ignore=tests/harness/test_stand_in.py; second=$$?; \
	  wait $$first; first=$$?; cat build/quick.txt; exit $$((first || second))

# Add each finding to its test as an explicit example, so that `make test` repeats it.
nightly: SEED := $(or $(SEED),$(shell date +%s))
nightly: $(READY) ## run every property test with new seeds and many examples; SEED=N repeats a run
	@echo "repeat this run with: make nightly SEED=$(SEED)"
	@$(BIN)/python $(PYTEST) -m hypothesis --hypothesis-profile=deep --hypothesis-seed=$(SEED) || { \
	  echo "repeat this run with: make nightly SEED=$(SEED)"; exit 1; }

check: $(READY) format lint types layers english test native-check coverage ## run all checks of the build

# Add a test for each finding. Repeat a case: .venv/bin/python -m tests.clients.fuzz build/pal-sanitized --seed N --case N
native-check: FUZZ_SEED := $(or $(SEED),1)
native-check: $(READY) $(SANITIZED) ## test the C client with sanitizers and fuzz it for a minute; SEED=N selects the cases
	@SANITIZED_CLIENT="$(CURDIR)/$(SANITIZED)" $(AGAIN) $(BIN)/python $(PYTEST) tests/clients \
	  --ignore=tests/clients/test_hatch_build.py
	@$(BIN)/python -m tests.clients.fuzz $(SANITIZED) --seed $(FUZZ_SEED)

$(SANITIZED): $(wildcard native/*.[ch])
	@mkdir -p $(@D)
	@$(CC) -std=c11 -O1 -g -D_GNU_SOURCE -Wall -Wextra -Werror -DPAL_VERSION='"$(VERSION)"' \
	  -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all native/*.c -o $@

format: $(READY)
	@$(BIN)/ruff format --check .

lint: $(READY)
	@$(BIN)/ruff check .

types: $(READY)
	@$(BIN)/mypy

english: $(READY) ## count phrases that are not plain English; at most 3 per 1,000 words in every folder
	@$(BIN)/python tools/plain_english.py --limit 3 --worst 0 src/palaver tests docs native bench examples tools README.md \
	  CONTRIBUTING.md SECURITY.md CHANGELOG.md

layers: $(READY)
	@$(BIN)/lint-imports --no-cache

coverage: $(READY) ## run the tests of the core packages and require full branch coverage
	@$(BIN)/coverage erase
	@$(AGAIN) $(BIN)/coverage run $(PYTEST) $(CORE:%=tests/%)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under=100 --skip-covered --include='$(CORE_FILES)' \
	  --omit='src/palaver/identity/process_darwin.py'

unlocked: ## install the newest allowed versions without the lock file, and run the pure tests
	@rm -rf .venv-unlocked && $(PYTHON) -m venv .venv-unlocked
	@.venv-unlocked/bin/python -m pip install --quiet --disable-pip-version-check . pytest pytest-asyncio hypothesis
	@.venv-unlocked/bin/pal --version
	@.venv-unlocked/bin/python -m pytest -q tests/protocol tests/state tests/domain
	@rm -rf .venv-unlocked

# A separate environment, because the compiler is a download of 100 MB. DIST=--no-install only builds,
# and DIST='--installer uv' checks with one installer.
DIST ?=
build/dist-tools/.ready: tools/dist.lock
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/dist.lock
	@touch $@

dist: build/dist-tools/.ready ## build sdist and wheels in dist/ from the last commit, and check them with pip, pipx and uv
	@build/dist-tools/bin/python tools/dist.py $(DIST)

test-harness: $(READY) ## run the four real harnesses against a scripted model; the first time installs them (1.6 GB)
	@$(BIN)/python -m tests.harness.real.install
	@PALAVER_HARNESS=1 $(AGAIN) $(BIN)/python -m pytest -q -n $(HARNESS_WORKERS) --dist worksteal --durations=15 \
	  tests/harness/real tests/flows/test_day.py

docs: $(READY) ## write docs/cli.md and docs/pal.1 from the table of commands
	@$(BIN)/python tools/write_cli_page.py

compat: $(READY) ## test the harnesses on the PATH and write docs/compatibility.md
	@$(BIN)/python tools/record_compatibility.py .

bench: $(READY) ## measure against hcom in the same run and write docs/performance.md; BEFORE=PAL compares starts
	@$(BIN)/python bench/run.py $(if $(BEFORE),--before $(BEFORE))

clean: ## remove all build results
	@rm -rf $(VENV) .venv-unlocked build dist .run .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
