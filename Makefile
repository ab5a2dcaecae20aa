# Most targets depend on `setup`, which is quick if there is nothing to do.
PYTHON ?= python3
BIN := .venv/bin
LIBRARIES := .venv/.libraries
READY := .venv/.ready
export DAGSTER_DISABLE_TELEMETRY := 1
# uv installs without bytecode, unlike pip. If Python may not write it either, each driver and each of its workers
# compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup setup-all demo demo-cluster dev docs screenshots test test-fast test-oldest test-definitions test-registry test-kubernetes lint audit format lock clean bench bench-quick bench-peers-killed bench-latency-long bench-joins-skewed lock-peers test-long faults faults-cluster faults-replicas alerts soak two-drivers

setup: $(READY) ## what a demo and an ordinary pipeline need; jars for state in S3, say, are fetched at their first use

setup-all: setup ## also the jars of every kind of state and of Amazon MSK, and the class data archive: then no network is needed
	$(BIN)/python -m glassflow_dagster.runtime.jars
	$(BIN)/python -m glassflow_dagster.stream.scala.build --all
	$(BIN)/python -m glassflow_dagster.stream.spark.cds_archive

# uv reads the same lock file as pip and installs in parallel. The editable install needs no separate build environment.
# Of pyspark there are only sources: to compress its wheel, which is unpacked at once, would take most of the time.
$(LIBRARIES): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv>=0.9,<1"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock \
	  --config-settings-package "pyspark:--build-option=--compression=stored"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $(LIBRARIES)

# The prerequisites include the sources of the jar and of the class data archive, which saves 4 s at each driver start.
$(READY): $(LIBRARIES) glassflow_dagster/runtime/jars.lock $(wildcard glassflow_dagster/stream/scala/*/*.scala) glassflow_dagster/stream/warmup.py
	$(BIN)/python -m glassflow_dagster.runtime.jars spark broker
	$(BIN)/python -m glassflow_dagster.stream.scala.build
	$(BIN)/python -m glassflow_dagster.stream.spark.cds_archive --background
	@touch $(READY)

# It fetches the jars and compiles by itself, while its servers start and its events are sent.
demo: $(LIBRARIES) ## sends the demo's events, runs all pipelines, and checks all counts
	$(BIN)/python -m glassflow_dagster.local.demo

demo-cluster: setup ## the same on several hosts, two of which are lost (network namespaces, as root; 5 to 12 min)
	$(BIN)/python -m tests.cluster.demo

dev: setup ## the embedded stack with Dagster on http://127.0.0.1:3000; Ctrl-C stops the drivers, then the stack
	$(BIN)/python -m glassflow_dagster.cli.dev

# All tests of a file run in one process, in the order of tests/conftest.py: xdist's own order begins with the files of
# many tests, which are the quick ones, and ends with one long test in one process. Three processes on two cores, since
# tests wait a third of their time.
PARALLEL := --numprocesses 3 --dist loadfile --no-loadscope-reorder

test: setup
	$(BIN)/python -m pytest $(PARALLEL) -m "not long"

test-long: setup ## runs the long tests, which `make test` leaves out
	$(BIN)/python -m pytest $(PARALLEL) -m long

test-fast: setup
	$(BIN)/python -m pytest $(PARALLEL) -m "not servers and not long"

# The tests that need neither a server nor the tools of `make lint` and `make docs`, and those of a Dagster process.
OLDEST := .venv-oldest
OLDEST_TESTS := tests/orchestration tests/cli tests/definition tests/control tests/driver tests/runtime/metrics tests/e2e/test_dagster.py tests/packaging/test_project.py

test-oldest: setup ## runs Dagster's part of the tests with the oldest versions within the bounds of pyproject.toml
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --python-version 3.11 --extra test --no-header \
	  --no-annotate --no-emit-package glassflow-dagster pyproject.toml --output-file $(OLDEST)/requirements.txt
	$(BIN)/uv pip sync --quiet --python $(OLDEST)/bin/python $(OLDEST)/requirements.txt
	$(BIN)/uv pip install --quiet --python $(OLDEST)/bin/python --no-deps --no-build-isolation --editable .
	$(OLDEST)/bin/python -m pytest $(PARALLEL) $(OLDEST_TESTS)

test-definitions: setup ## runs every definition in tests/definitions; `make test` runs some
	$(BIN)/python -m pytest tests/definitions

test-registry: setup ## runs Confluent's serializers against a real schema registry (Apicurio, which it downloads)
	GLASSFLOW_TEST_REGISTRY=1 $(BIN)/python -m pytest tests/e2e/test_real_registry.py

test-kubernetes: setup ## the runner on a real kube-apiserver, with pods; as root, with Go 1.22 (builds it once, 6 min)
	$(BIN)/python -m tests.kubernetes.programs
	GLASSFLOW_TEST_KUBERNETES=1 $(BIN)/python -m pytest tests/control/runners/test_contract.py tests/control/runners/test_on_kubernetes.py -k "kubeflow or apache or accounts"

faults: setup ## one repetition of each fault on each workload; OPTIONS='--kind "answer cut" --seed 7' runs one
	$(BIN)/python -m tests.faults $(OPTIONS)

faults-replicas: setup ## the same of faults with replicated tables (Linux on x86-64)
	$(BIN)/python -m tests.replicas.faults $(OPTIONS)

faults-cluster: setup ## the same of faults on several hosts (network namespaces, as root)
	$(BIN)/python -m tests.cluster.faults $(OPTIONS)

alerts: setup ## fires every alert by a fault on a real pipeline
	$(BIN)/python -m pytest tests/monitoring/test_alerts.py

soak: setup ## eight minutes at 5,000 events a second, with a fault every 20 to 60 seconds
	$(BIN)/python -m tests.faults.soak

two-drivers: setup ## two drivers on two hosts (network namespaces, as root): one seed of each kind of fault
	$(BIN)/python -m tests.cluster.two_drivers

# Not --quiet, which hides the warnings that --strict counts.
docs: setup ## generates docs/reference/ from the code, and builds all pages into build/docs; a broken link fails
	$(BIN)/python .ci/reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

screenshots: setup ## takes the pages' screenshots again from the running product; needs Chromium on the PATH
	PYTHONPATH=. $(BIN)/python .ci/screenshots.py
	SCREENSHOTS=docs/assets $(BIN)/python -m pytest tests/server/ui/test_browser.py

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python .ci/scalafmt.py --test --non-interactive
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/glassflow-dagster validate pipelines/*.yaml

audit: setup ## checks requirements.lock for known advisories; says so if their database cannot be reached
	$(BIN)/python .ci/audit.py

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python .ci/scalafmt.py --non-interactive

BENCHMARKS := start capacity fleet shapes formats routes scale throughput peers glassflow peers-killed latency latency-long object-store pools state-size growth depth joins joins-skewed final kafka-engine expressions guarantee verification

# Simultaneous benchmarks would disturb each other.
.NOTPARALLEL:

bench: $(addprefix bench-,$(BENCHMARKS)) ## all benchmarks, five runs each: takes hours, on an otherwise idle machine

# One benchmark, with the archive of classes that `setup` makes in the background; its figures go to docs/evidence. benchmarks/NAME.py says what it measures. OPTIONS="--runs 1".
bench-%: setup
	$(BIN)/python -m glassflow_dagster.stream.spark.cds_archive
	$(BIN)/python -m benchmarks.$(subst -,_,$*) $(OPTIONS)
	$(BIN)/python -m benchmarks.report

bench-quick: setup ## ten minutes: fails where a rate is more than 15 % below that of an earlier commit in the same run
	$(BIN)/python -m glassflow_dagster.stream.spark.cds_archive
	$(BIN)/python -m benchmarks.quick $(OPTIONS)

bench-peers-killed: setup ## kills each peer half way, and counts lost and duplicated rows
	$(BIN)/python -m benchmarks.peers --kill $(OPTIONS)
	$(BIN)/python -m benchmarks.report

bench-latency-long: setup ## latency with ten million keys in the state
	$(BIN)/python -m benchmarks.latency --keys 10000000 $(OPTIONS)
	$(BIN)/python -m benchmarks.report

bench-joins-skewed: setup ## joins with 90 % of the events on one key
	$(BIN)/python -m benchmarks.joins --skew 0.9 $(OPTIONS)
	$(BIN)/python -m benchmarks.report

lock-peers: ## resolves the versions of the benchmark's peers again
	for peers in requirements requirements-flink; do $(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 \
	  --no-annotate --no-header --no-emit-index-url --no-emit-find-links \
	  benchmarks/peers/$$peers.in --output-file benchmarks/peers/$$peers.txt || exit 1; done

lock: ## resolves the versions again, within the bounds of pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes \
	  --no-annotate --no-header --no-emit-index-url --no-emit-find-links --no-emit-package glassflow-dagster \
	  pyproject.toml --output-file requirements.lock

clean: setup ## stops the stack and removes its data, and all state
	-$(BIN)/glassflow-dagster stack down
	rm -rf .glassflow
