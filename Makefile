# Every target does its own set-up: on a fresh machine with Python 3.11+ and make, `make demo` is enough.
# `make help` lists the targets with the text after ##.

BIN := .venv/bin
STAMP := .venv/.set-up
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
LISTEN ?= 127.0.0.1:9092
DATA ?= .runnel
WORKERS ?= 4
ROUNDS ?= 200
KILLS ?= 100
SEEDS ?= 500
FRAMES ?= 1000000
SECONDS_LONG ?= 120
NODES ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo up test check compiled long java format sim bench conformance mixed crash fuzz fresh clean

help: ## show this list
	@echo "Runnel: a message broker that speaks Kafka's protocol. Start with: make demo"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## build .venv with pinned versions (every other target does this first)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Runnel needs Python 3.11 or newer, and none was found. Install one, or set its path: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv || { \
		echo "$(PYTHON) could not create a virtual environment. On Debian or Ubuntu: apt install python3-venv; elsewhere: install the package that contains Python's venv and ensurepip modules." >&2; rm -rf .venv; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling setuptools wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e '.[dev,spark]'
	@$(BIN)/python -m compileall -q src
	@touch $@

demo: $(STAMP) ## a broker, a consumer group, a replay, a crash; a pipeline on Spark, its audit, two reports (KEEP=1: leaves broker and console running)
	$(BIN)/runnel demo $(if $(KEEP),--keep)

up: $(STAMP) ## run a broker in the foreground (LISTEN=127.0.0.1:9092 DATA=.runnel)
	$(BIN)/runnel serve --listen $(LISTEN) --data-dir $(DATA)

# Hundreds of processes import the same modules: the first one stores them compiled.
test long java: export PYTHONDONTWRITEBYTECODE :=
test: $(STAMP) ## all checks, then all tests (WORKERS=4)
	@$(MAKE) --no-print-directory -j2 check compiled
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

compiled: $(STAMP)
	@$(BIN)/pytest --collect-only -q >/dev/null 2>&1 || true  # what fails here fails again in the tests

long: $(STAMP) ## tests that take a minute each: Spark clusters, Spark's own Kafka connector, Java programs that are killed
	$(BIN)/pytest -m long $(ARGS)

java: $(STAMP) ## tests with programs of Apache Kafka: its tools, its Java clients, its brokers and controllers as peers
	$(BIN)/pytest -m java -n $(WORKERS) --dist worksteal $(ARGS)

check: $(STAMP) ## style, types, import contracts and tidiness, without running a test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/tidy.py

format: $(STAMP) ## apply ruff's automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

sim: $(STAMP) ## simulated crashes, power cuts and full disks, each reproducible by its seed, then mutants (SEEDS=500)
	$(BIN)/python -m runnel.sim --seeds $(SEEDS) $(ARGS)
	$(BIN)/python -m runnel.sim --mutants

bench: $(STAMP) ## Runnel and a warm Apache Kafka, alternating; writes docs/BENCHMARKS.md (QUICK=1: a short run, no page)
	@status=0; \
	$(BIN)/python -m tools.bench $(if $(QUICK),--quick) $(ARGS) || status=$$?; \
	$(BIN)/python -m tools.spark_bench $(if $(QUICK),--quick) || status=$$?; \
	exit $$status

conformance: $(STAMP) ## third-party suites: Kafka's tools, Streams, Connect, franz-go, Kafka itself; writes docs/CONFORMANCE.md (NODES=3: a cluster; SECURED=1: TLS, SASL and ACLs)
	$(BIN)/python -m tools.conformance --nodes $(NODES) $(if $(SECURED),--secured) $(ARGS)

mixed: $(STAMP) ## librdkafka, Java and franz-go in one KIP-848 group while members join, leave and are killed (SECONDS_LONG=120)
	$(BIN)/python -m tools.mixed --seconds $(SECONDS_LONG) $(ARGS)

crash: $(STAMP) ## kill -9 under load, power cuts, a full disk, transactions, Spark, a cluster (ROUNDS=200 KILLS=100 ONLY=kill|powercut|full|chain|spark|cluster|operations|quiet|rotation, with Apache Kafka: mixed|migration; SECURED=1: the cluster over mTLS; QUICK=1: a tenth)
	$(BIN)/python -m tools.crash --rounds $(ROUNDS) --kills $(KILLS) $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick) $(if $(SECURED),--secured) $(ARGS)

fuzz: $(STAMP) ## mutated frames against a running broker, with its memory monitored (FRAMES=1000000; SECURED=1: through TLS and SASL; COST=1: the pauses of the largest requests, 20 minutes, writes docs/COSTS.md)
	$(BIN)/python -m tools.fuzz $(if $(COST),--cost $(if $(QUICK),--quick),--frames $(FRAMES) $(if $(SECURED),--secured all)) $(ARGS)

fresh: $(STAMP) ## check that a clean clone works: empty home and caches, make demo and make test (ARGS=--without-java)
	$(BIN)/python -m tools.fresh $(ARGS)

clean: ## remove .venv, caches and build products; data folders are kept
	rm -rf .venv dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
