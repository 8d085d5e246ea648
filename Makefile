# Every target does its own set-up (tools/bootstrap.sh) and may be run first on a fresh host.
# CARGO_TARGET_DIR is honoured; without it cargo builds in engine/target.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# The targets share one cargo folder and one .venv: side by side they would only wait for each
# other's locks.
.NOTPARALLEL:

ENV := . .venv/dray-env.sh &&
CARGO := $(ENV) cd engine && cargo
PYTEST := $(ENV) python -m pytest
# The same, but tests that failed beside other tests run again alone.
PYTEST_TWICE := $(ENV) python tools/python_tests.py
# Absolute and exported, so that cargo, setuptools-rust and the tests all mean the same folder.
override CARGO_TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),engine/target))
export CARGO_TARGET_DIR
# A wheel is built from the unpacked sdist. Its programs come from other paths than the tree's, so
# they get a folder of their own and do not overwrite what `make build` left.
DEMO = $(ENV) DRAY_PROGRAM=$(CARGO_TARGET_DIR)/release/dray \
	PYTHONPATH=engine/python:operators:. python tools/demo.py
WHEEL_TARGET_DIR := $(CARGO_TARGET_DIR)/wheel

SECONDS ?= 60
SEEDS ?= 2500
# Integration tests wait more than they compute. A file's tests stay together: they share servers.
WORKERS ?= 4

.PHONY: help setup setup-build setup-demo setup-celery build unit test test-full test-docker
.PHONY: test-celery test-storage check integration sim fuzz demo demo-down demo-engine bench bench-peers wheel
.PHONY: setup-xrootd setup-packages setup-bench build-xrootd deb rpm sbom build-sim develop develop-release fmt clean
.PHONY: bench-recovery experiments-bbos tier-run setup-console console check-console

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  Variables: SECONDS=60 (fuzz, per target); SEEDS=2500 or SEED=n (sim);"
	@echo "             WORKERS=4 (integration: concurrent tests);"
	@echo "             ARGS=... (unit, integration: more words for pytest; bench, bench-peers, bench-recovery:"
	@echo "             options)"

setup: ## Install what is missing on this host (apt when root) and fill .venv
	@tools/bootstrap.sh test

setup-build:
	@tools/bootstrap.sh build

setup-demo:
	@tools/bootstrap.sh demo

setup-celery:
	@tools/bootstrap.sh celery

setup-xrootd:
	@tools/bootstrap.sh xrootd

setup-packages:
	@tools/bootstrap.sh packages

setup-console:
	@tools/bootstrap.sh console

setup-manual:
	@tools/bootstrap.sh manual

setup-bench:
	@tools/bootstrap.sh bench

# Only these two targets and the tests of logins need Node.js and a registry of packages: the built
# files are in the tree.
NPM := cd engine/crates/dray-endpoint/console && npm
NPM_INSTALL := $(NPM) ci --ignore-scripts --no-audit --no-fund --silent

console: setup-console ## Build the files of the web console from their TypeScript sources
	$(NPM_INSTALL)
	$(NPM) run --silent types
	$(NPM) run --silent build

check-console: setup-console ## Check that a new build of the web console equals the files in the tree
	$(NPM_INSTALL)
	$(NPM) run --silent check

# Without the simulator, whose planted defects do not belong into the programs.
RELEASE := $(CARGO) build --locked --release --workspace --exclude dray-sim --bins
# Build the examples of the whole workspace. The examples then share the libraries of the unit tests.
EXAMPLES := $(CARGO) build --locked --workspace --examples

build: setup-build ## Release programs in engine/target/release/
	$(RELEASE)
	ln -sf dray $(CARGO_TARGET_DIR)/release/drayd

build-xrootd: setup-xrootd ## What reaches XRootD, beside the release programs: a program and libraries
	$(RELEASE)
	$(MAKE) --no-print-directory -C plugins/xrootd OUT=$(CARGO_TARGET_DIR)/release

develop: setup-build ## Editable install in .venv, native module built in place (debug)
	$(ENV) PYTHONWARNINGS=ignore python -m pip install --quiet --no-build-isolation --no-deps -e .

develop-release: export SETUPTOOLS_RUST_CARGO_PROFILE := release
develop-release: develop ## The same with the engine optimised

unit: setup develop-release ## Unit, property and virtual-time tests: no servers, under ten minutes after the build
	$(ENV) python tools/rust_tests.py
	$(PYTEST_TWICE) -m "not slow and not server and not bench and not celery" \
		-n 2 --dist loadfile $(ARGS)

check: setup ## Format, lints, types, house and layer rules, dependency audit
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) test --locked --quiet -p dray-tidy
	$(ENV) ruff check .
	$(ENV) ruff format --check .
	$(ENV) mypy
	$(ENV) python tools/audit.py
	for script in tools/*.sh docker/*.sh .ci/run; do bash -n "$$script"; done

integration: setup build build-xrootd build-sim develop-release ## Tests that need more than one part, real servers included
	$(EXAMPLES)
	$(PYTEST_TWICE) -m "(slow or server) and not full and not bench and not celery" \
		-n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test: check unit ## Everything that every change must pass: checks, unit tests, simulator, integration tests
	$(MAKE) sim
	$(MAKE) integration

# One after the other: moments are many small waits, made calls are many small bodies, and the loads
# assert answering times, for which nothing else may run.
test-full: export DRAY_FULL := 1
test-full: setup build build-xrootd build-sim develop-release ## Faults in full: 20 moments of each, failed calls, power loss, soak, loads, fuzzing; three hours or more
	$(EXAMPLES)
	$(PYTEST) integration/endpoint/test_faults_*.py integration/faults/test_kill.py -n $(WORKERS) \
		--dist load -rA $(ARGS)
	$(PYTEST) integration/endpoint/test_openapi.py integration/endpoint/test_schema.py \
		integration/packaging/test_wheel.py -rA $(ARGS)
	$(PYTEST) integration/faults/test_errno_sweep.py integration/faults/test_crash_replay.py \
		-n $(WORKERS) --dist load -rA $(ARGS)
	$(PYTEST) -m "full and not bench and not celery" --ignore integration/endpoint/test_load.py \
		--ignore-glob "*/endpoint/test_faults_*.py" \
		-n $(WORKERS) --dist loadfile -rA $(ARGS)
	$(CARGO) test --locked -p dray-log --test forms
	$(PYTEST) integration/faults/test_soak.py integration/endpoint/test_load.py -s -rA $(ARGS)
	$(MAKE) fuzz SECONDS=10
	$(MAKE) check-console

.PHONY: fault-full
# A run that was interrupted continues: cells in the file of results do not run again.
fault-full: setup build ## Every fault at 10, 50 and 90 % of a transfer, with each form of the log; root, an hour or more; writes a page
	mkdir -p integration/out
	$(ENV) PYTHONPATH=engine/python:. python -m integration.fault_matrix \
		--results integration/out/fault-matrix.jsonl --report $(ARGS)

# The programs are those of `integration`. Three workers: most tests wait for a cluster, and each
# worker starts clusters of its own.
test-storage: setup build build-xrootd develop-release ## Real storage clusters (Ceph, GlusterFS) with faults and stock clients: 10 minutes; a part of the tests with Ceph is in `make test`
	$(EXAMPLES)
	$(PYTEST_TWICE) -m "(slow or server or full) and not bench" integration/storage \
		-n 3 --dist loadfile $(ARGS)

test-docker: ## Two endpoints and a client in containers, with docker or podman; KEEP=1 keeps the images
	@tools/container.sh

.PHONY: testbed
testbed: ## The managers of e2e-managers in containers, Airflow with Celery, PostgreSQL and Redis; HOLD=1 keeps them
	@tools/testbed.sh

build-sim: setup-build
	$(CARGO) build --locked --release -p dray-sim --bins

sim: build-sim ## Simulated transfers with faults and checkers; SEED=n replays one
	$(CARGO_TARGET_DIR)/release/dray-sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

.PHONY: sim-night
sim-night: setup build-sim ## 10 000 simulated transfers with ten faults each, and all planted defects: ten minutes; rewrites their logs in docs
	$(ENV) python -m integration.simulation.night

.PHONY: e2e-deadline
e2e-deadline: setup build ## A DAG beside background load, with a deadline and without, on a real Airflow: six minutes
	$(ENV) DRAY_PROGRAM=$(CARGO_TARGET_DIR)/release/dray PYTHONPATH=engine/python:operators:. \
		python -m integration.airflow.deadline

.PHONY: e2e-managers
e2e-managers: setup build build-xrootd ## Airflow, Rucio, FTS service, XRootD servers and endpoints together, with a kill -9: three minutes; ARGS=--hold keeps them
	$(ENV) PYTHONPATH=engine/python:operators:. python -m integration.managers $(ARGS)

fuzz: setup-build ## Fuzz every decoder for SECONDS each
	$(ENV) tools/fuzz.sh $(SECONDS)

test-celery: setup-celery build develop-release ## Airflow on PostgreSQL and Redis: two Celery workers share a dataset
	$(PYTEST) -m celery integration/airflow $(ARGS)

# Only the program; the demo runs Python from the tree.
demo: setup-demo ## The main job: an Airflow DAG moves a real tree (DATA=DIR) by a deadline, through kill -9
	$(CARGO) build --locked --release -p dray-cli --bins
	$(DEMO) up

demo-down: ## End what `make demo` has left running
	@if [ -d .tools/demo ]; then $(DEMO) down; fi

demo-engine: build ## The engine alone: two processes, a real tree (DATA=DIR), kill -9 in the middle, resume
	$(ENV) tools/demo-engine.sh

BENCH = $(ENV) PYTHONPATH=engine/python:operators:. python -m integration.bench

bench: setup build ## Measure against cp and rsync on this host; ARGS=--help lists the options
	$(BENCH) --short --congestion system $(ARGS)

bench-peers: setup-bench build ## Measure against GridFTP, XRootD, rclone and others; an hour or more
	$(BENCH) $(ARGS)

bench-recovery: setup-bench build ## Redo the figures of FT-LADS: cost of logs, recovery; as root, hours; continues
	$(ENV) PYTHONPATH=engine/python:operators:. python -m integration.bench.recovery $(ARGS)
	$(ENV) PYTHONPATH=engine/python:operators:. python -m integration.bench.recovery --report

experiments-bbos: setup ## Repeat the experiments of the burst-buffer paper in the simulator; rewrites their pages
	$(ENV) python -m integration.simulation.bbos
	$(ENV) python -m integration.simulation.bbos_restarts

tier-run: setup build ## A tier on loop devices, 1.0 to 2.1 S; needs root; 23 minutes; rewrites its page
	$(ENV) PYTHONPATH=engine/python:operators:. python -m integration.simulation.tier_real

PACKAGES := $(ENV) PYTHONPATH=. python -m tools.packages

wheel: setup-build ## sdist and, from it, the abi3 wheel, in dist/
	$(ENV) CARGO_TARGET_DIR=$(WHEEL_TARGET_DIR) python -m build --no-isolation --outdir dist
	$(PACKAGES).wheel dist

deb: setup-packages build-xrootd ## Debian packages in dist/: dray, dray-xrootd, debug information
	$(PACKAGES).deb dist

rpm: setup-packages build-xrootd ## RPM packages in dist/: dray, dray-xrootd, debug information
	$(PACKAGES).rpm dist

sbom: setup-xrootd ## Software bills of materials (CycloneDX) of the packages and the wheel, in dist/
	$(PACKAGES).sbom dist

.PHONY: setup-manual manual screenshots
# Without --quiet, which would also hide warnings from the strict mode.
manual: setup-manual ## The manual as a site, in dist/manual/; open index.html there
	rm -rf dist/manual
	NO_MKDOCS_2_WARNING=1 .tools/manual/bin/mkdocs build --config-file tools/manual/mkdocs.yml

screenshots: setup build ## Pictures of the web console for the manual, in docs/how-to/console/
	DRAY_SCREENSHOTS=docs/how-to/console $(PYTEST) integration/endpoint/test_console_pictures.py

fmt: setup ## Rewrite Rust and Python in the house's format
	$(CARGO) fmt --all
	$(ENV) ruff check --fix --quiet .
	$(ENV) ruff format .

clean: ## Remove everything that was built or installed in this tree
	rm -rf .venv .tools build dist engine/target integration/out
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf *.egg-info engine/python/*.egg-info engine/python/dray/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
