# SPDX-License-Identifier: Apache-2.0
#
# All targets write below .dev/. Targets can be interrupted and run again. Finished parts are kept as long as
# their inputs have the same hash (stamps named by it). Each step prints its seconds and logs to .dev/log/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# devcluster: our own nodes on this host's kernel; kind: plain kind, which needs Docker.
export CLUSTER ?= devcluster
# Seeds of `make test-storm`: each seed is one storm, with its jobs and its kills.
export STORM_SEEDS ?= 1 2 3 4 5
# Seeds of `make test-queue-storm`.
QUEUE_STORM_SEEDS ?= 1 2
# Duration and seed of the faults that `make test-alerts` injects.
export ALERT_STORM_SECONDS ?= 3600
export ALERT_STORM_SEED ?= 1
# Jobs, policies and seed of `make test-truth`.
export TRUTH_ARRIVALS ?= 2000
export TRUTH_POLICIES ?= first-fit best-fit worst-fit dot-product gpu-packing gpu-clustering fgd default
export TRUTH_SEED ?= 1
# Number of what-if questions of `make test-what-if`.
test-what-if: export TRUTH_QUESTIONS ?= 500
# Duration of `make fuzz`; FUZZ_SEED repeats the calls of a run.
FUZZ_SECONDS ?= 300
# Duration of `make fuzz-api`.
API_FUZZ_SECONDS ?= 600
ifndef PYTHON
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; \
  done || true)
$(if $(PYTHON),,$(error Python 3.11 or newer is not on PATH; install it or set PYTHON))
endif

DEV := .dev
BIN := $(DEV)/bin
VENV := $(DEV)/venv
PY := $(VENV)/bin/python
STAMPS := $(DEV)/stamps
STEP := .ci/step
COMPONENTS := $(shell sed -n '/^components = \[/,/^\]/ s/^  "\(.*\)",$$/\1/p' pyproject.toml)
# Only the devcluster and its image store need root.
export SUDO := $(if $(filter kind,$(CLUSTER))$(filter 0,$(shell id -u)),,sudo -E env PATH=$(PATH))

# Builds images; needs only Python's standard library.
IMAGES := $(SUDO) env PYTHONPATH=hack/images $(PYTHON) -B -m gpupack_images

# Builds binaries; needs only Python's standard library and Go.
GO_BUILD := env PYTHONPATH=hack/devcluster $(PYTHON) -B -m gpupack_devcluster.build $(BIN)

# Python version of the host for which `make gpu-bundle` packs.
GPU_PYTHON ?= 3.12

hash = $(shell cat $(1) 2>/dev/null | sha256sum | cut -c1-12)
VENV_STAMP := $(STAMPS)/venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')-$(call hash,requirements-dev.lock .ci/make-venv $(COMPONENTS:%=%/pyproject.toml))
# Compile every library to bytecode, because Python does not write it with -B. The demo imports few libraries
# and skips this step, which takes 45 s of processor time.
BYTECODE ?= yes
BYTECODE_STAMP := $(VENV_STAMP:$(STAMPS)/venv-%=$(STAMPS)/bytecode-%)
IMAGES_STAMP = $(STAMPS)/images-$(ENGINE)

# The devcluster's nodes hard-link the layers of buildah's store. kind loads from Docker, or, if Docker has no
# buildx, from archives that buildah writes.
export ENGINE := $(if $(filter kind,$(CLUSTER)),auto,buildah)
# Images and binaries that all tests and `make lint-chart` need in addition to those of the demo.
TEST_IMAGES ?= judge workloads-test notebook tensorflow tensorflow-test
TEST_BINARIES ?= kwok kubeconform
# The subset that `make test` and CI need.
setup-test test test-cluster: export TEST_IMAGES = judge
setup-test test test-cluster: export TEST_BINARIES = kubeconform
POD_IMAGES := operator extender api agent workloads $(TEST_IMAGES)
# With the devcluster, which needs Go on the host anyway, the launcher is compiled on the host, not in its image.
ifneq ($(CLUSTER),kind)
HOST_BINARIES := launcher-binary
export LAUNCHER := launcher-of-the-host
endif
HOST_IMAGES := $(if $(filter kind,$(CLUSTER)),,pause kube-scheduler)
# A failed test runs once more, alone, after its suite.
PYTEST := .ci/rerun-failed $(PY) -B -m pytest
# Runs as root and must leave no files of root in the user's checkout.
PYTEST_CLUSTER := $(SUDO) $(PYTEST) --durations 25
# Parallel tests on the cluster. They wait more than they compute.
CLUSTER_TEST_WORKERS ?= 4
# Parallel unit tests: one more than there are cores, because many of them wait.
UNIT_TEST_WORKERS ?= $(shell expr $$(nproc) + 1)
E2E := --ignore tests/e2e/edges --ignore tests/e2e/workloads tests/e2e
# Node is part of the virtual environment. The dashboard's npm packages are downloaded once.
NODE_STAMP := $(STAMPS)/node-$(call hash,apiserver/dashboard/package-lock.json)
NPM := env PATH=$(CURDIR)/$(VENV)/bin:$(PATH) npm --prefix apiserver/dashboard
GENERATED = $(wildcard apiserver/openapi.json crds/*.yaml charts/gpupack/files/crds/*.yaml charts/gpupack/files/monitoring/*.json charts/gpupack/files/required-values.txt agent/gpupack_agent/api/*_pb2*)


##@ For all users

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: ## Start a real cluster on this machine and run GPUJobs from apply to result; the cluster stays up
	@$(MAKE) cluster-up TEST_IMAGES= TEST_BINARIES= BYTECODE=
	@$(PY) hack/demo.py

.PHONY: cluster-up
cluster-up: ## Start the cluster, load the images, install the chart
	@$(MAKE) setup
	@$(STEP) cluster $(SUDO) $(PY) -m gpupack_devcluster up
	@[ -z "$(SUDO)" ] || $(SUDO) chown $(shell id -u) $(DEV)/kubeconfig
	@$(STEP) load .ci/load-images $(POD_IMAGES)
	@$(STEP) install .ci/install-chart

.PHONY: setup
setup: ## Build what cluster-up needs, in parallel: libraries, binaries, images
	@$(MAKE) -j4 parts

.PHONY: setup-test
setup-test: setup

.PHONY: cluster-down
cluster-down: ## Stop the cluster; the next start uses its data again
	@$(STEP) cluster-down $(SUDO) $(PY) -m gpupack_devcluster down

.PHONY: clean
clean: ## Stop the cluster and delete .dev
	@[ ! -x $(PY) ] || $(STEP) cluster-reset $(SUDO) $(PY) -m gpupack_devcluster reset
	@# Unmount what an interrupted image build has left.
	@awk -v below=$(CURDIR)/$(DEV)/ 'index($$2, below) == 1 {print $$2}' /proc/mounts | sort -r | \
	  xargs -r $(SUDO) umount
	@$(SUDO) rm -rf $(DEV)


##@ On a host with NVIDIA GPUs

.PHONY: demo-gpu
demo-gpu: ## As root: start the cluster with the real agent, run jobs on the GPUs, write a report; DEMO_GPU=--only-gangs
	@[ -e $(DEV)/gpu-bundle/facts.json -a ! -e $(VENV) ] || $(MAKE) setup
	@$(SUDO) env PYTHONPATH=hack/devcluster $(PYTHON) hack/gpu-acceptance/gpu.py $(DEMO_GPU)

.PHONY: preflight
preflight: ## Check whether this host is ready for gpupack and print what to change; changes nothing
	@$(MAKE) venv
	@$(SUDO) $(PY) -m gpupack_agent preflight

.PHONY: gpu-bundle
gpu-bundle: ## Pack .dev/gpu-bundle.tar, with which demo-gpu runs on a host without downloads
	@$(MAKE) binaries venv host
	@STEP_SHOW=1 $(STEP) gpu-bundle $(PY) hack/gpu-acceptance/gpu_bundle.py $(GPU_PYTHON)

.PHONY: bench-workloads
bench-workloads: ## Run every workload at the sizes of docs/workloads; ONLY="gemm,softmax"
	@$(PYTHON) benchmarks/workloads_suite.py --only "$(ONLY)"


##@ For developers

.PHONY: test
test: ## Run the unit tests and, on the real cluster, the tests that are not slow
	@$(MAKE) -j1 --keep-going test-unit test-cluster

.PHONY: test-cluster
test-cluster: ## Run the tests on the cluster that are not slow
	@$(MAKE) cluster-up
	@$(MAKE) pytest-e2e BUT="and not slow"

.PHONY: test-all
test-all: ## Run all tests: unit, cluster, slow, workloads, browser, host, wheels; CI does not run it
	@$(MAKE) -j1 --keep-going wheels test-unit test-browser test-host test-workloads launchers test-e2e

.PHONY: test-unit
test-unit: venv ## Run the tests that need no cluster
	@STEP_SHOW=1 $(STEP) test-unit $(PYTEST) -n $(UNIT_TEST_WORKERS) -m "not gpu" --timeout 120 --durations 25 tests/unit

.PHONY: test-properties
test-properties: export GPUPACK_TEST_CASES ?= 1000
test-properties: venv ## Search for new counterexamples with random cases of each property; GPUPACK_TEST_CASES=1000
	@STEP_SHOW=1 $(STEP) test-properties $(PYTEST) -n $(UNIT_TEST_WORKERS) -m hypothesis tests/unit/placement \
	  tests/unit/queue tests/unit/simulator

.PHONY: test-launcher
test-launcher: venv ## Run go vet and the tests of the launcher, if Go is installed; part of make test-unit
	@STEP_SHOW=1 $(STEP) test-launcher $(PY) -m pytest tests/unit/launcher

.PHONY: test-frameworks
test-frameworks: venv ## Run the examples of docs/python.md with PyTorch and TensorFlow on the CPU; downloads some GB
	@$(PY) -m pip install -q --upgrade --target $(DEV)/frameworks torch tensorflow-cpu
	@PYTHONPATH=$(DEV)/frameworks $(PY) -m pytest --timeout 180 tests/unit/client/test_page.py

.PHONY: test-launchers
test-launchers: ## Run examples/launchers on the cluster: torchrun, Accelerate, DeepSpeed, Lightning, …
	@$(MAKE) cluster-up launchers
	@STEP_SHOW=1 $(STEP) test-launchers $(PYTEST_CLUSTER) --timeout 600 tests/e2e/test_launchers.py

.PHONY: launchers
launchers: venv ## Install what examples/launchers needs besides torch, in a folder that pods mount
	@$(STEP) launchers .ci/launchers $(PY) $(DEV)/launchers

.PHONY: test-browser
test-browser: dashboard chromium ## Test the dashboard in a browser, on the REST API with a made-up cluster
	@$(STEP) test-dashboard $(NPM) test
	@STEP_SHOW=1 $(STEP) test-browser $(PY) -B -m pytest --durations 5 --timeout 120 tests/browser

# Runs as root, on buildah's image store.
.PHONY: test-host
test-host: venv host podman $(HOST_BINARIES) ## Test one machine without a cluster: API, page and agent by podman-compose
	@STEP_SECONDS=300 $(STEP) host-parts $(IMAGES) build --engine buildah dashboard launcher api agent
	@STEP_SHOW=1 $(STEP) test-host $(SUDO) env PATH=$(CURDIR)/$(DEV)/podman-compose/bin:$(PATH) \
	  PYTHONPATH=$(CURDIR)/$(DEV)/podman-compose CONTAINERS_STORAGE_CONF=$(CURDIR)/$(DEV)/images/storage.conf \
	  $(PY) -B -m pytest -o cache_dir=$(DEV)/pytest-host --durations 5 --timeout 240 tests/host

# Debian's podman-compose is too old: it has no `pid: host`.
.PHONY: podman
podman: venv
	@command -v podman >/dev/null || $(STEP) podman .ci/apt-install podman
	@[ -x $(DEV)/podman-compose/bin/podman-compose ] || $(STEP) podman-compose \
	  $(PY) -m pip install -q --target $(DEV)/podman-compose podman-compose==1.6.0

.PHONY: screenshots
screenshots: dashboard chromium ## Write the pictures of docs/dashboard.md
	@$(STEP) screenshots $(PY) -B tests/browser/screenshots.py

.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || $(STEP) chromium .ci/apt-install chromium

.PHONY: test-e2e
test-e2e: ## Run tests/e2e without the workloads and the hard edges
	@$(MAKE) cluster-up
	@$(MAKE) pytest-e2e

# First the tests that share the cluster, in parallel, then those that need it alone.
.PHONY: pytest-e2e
pytest-e2e:
	@$(MAKE) -j1 --keep-going pytest-parallel pytest-alone

.PHONY: pytest-alone
pytest-alone:
	@STEP_SHOW=1 $(STEP) test-alone $(PYTEST_CLUSTER) --timeout 600 -m "not gpu and alone $(BUT)" $(E2E)

.PHONY: pytest-parallel
pytest-parallel:
	@STEP_SHOW=1 $(STEP) test-parallel $(PYTEST_CLUSTER) -n $(CLUSTER_TEST_WORKERS) --dist loadfile --timeout 600 \
	  -m "not gpu and not alone $(BUT)" $(E2E)

.PHONY: test-edges
test-edges: ## Test the hard edges: partitions, full disks, lost replies
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-edges $(PYTEST_CLUSTER) --timeout 600 tests/e2e/edges

# Compiling them from source takes about half an hour of processor time, once.
ECOSYSTEM ?= jobset lws trainer kuberay kueue
.PHONY: ecosystem
ecosystem: ## Install controllers that create gangs on the cluster; ECOSYSTEM="jobset lws trainer kuberay kueue"
	@$(MAKE) cluster-up
	@STEP_SECONDS=1200 $(STEP) controllers $(GO_BUILD) $(ECOSYSTEM:%=controller-%)
	@$(STEP) controllers-image $(IMAGES) build --engine $(ENGINE) controllers
	@$(STEP) load-controllers .ci/load-images controllers
	@$(STEP) install-controllers $(SUDO) $(PY) -m gpupack_devcluster controllers install $(ECOSYSTEM)

.PHONY: test-workloads
test-workloads: ## Run every workload's example on the cluster, small, and the tests in the image
	@$(MAKE) cluster-up
	@$(MAKE) pytest-workloads

.PHONY: pytest-workloads
pytest-workloads:
	@STEP_SHOW=1 $(STEP) test-workloads $(PYTEST_CLUSTER) --timeout 600 -m "not gpu $(BUT)" tests/e2e/workloads

.PHONY: workloads-table
workloads-table: venv ## Write tables and figures of docs/workloads from the reports in docs/reports
	@$(PY) -B benchmarks/workloads_table.py
	@$(PY) -B benchmarks/collectives_figure.py
	@$(PY) -B benchmarks/train_cnn_figure.py
	@$(PY) -B benchmarks/inference_shares.py --table

.PHONY: test-storm
test-storm: ## Run 150 GPUJobs and 10 Deployments while components are killed; STORM_SEEDS="1 2 3 4 5"
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-storm $(PYTEST_CLUSTER) --timeout 1200 tests/storm/test_mixed_storm.py

.PHONY: test-kinds-storm
test-kinds-storm: ## Run whole GPUs, shares, MIG slices and two other vendors while components are killed; STORM_SEEDS="1 2"
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-kinds-storm $(PYTEST_CLUSTER) --timeout 1200 tests/storm/test_kinds_storm.py

# It has its own seeds, because each takes a quarter of an hour.
test-queue-storm: export STORM_SEEDS = $(QUEUE_STORM_SEEDS)
.PHONY: test-queue-storm
test-queue-storm: ## Run 500 GPUJobs of six namespaces with quotas while components fail; QUEUE_STORM_SEEDS="1 2"
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-queue-storm $(PYTEST_CLUSTER) --timeout 2400 tests/storm/test_queue_storm.py

.PHONY: test-alerts
test-alerts: ## Test that alerts fire for each fault and for nothing else; ALERT_STORM_SECONDS=3600
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-alerts $(PYTEST_CLUSTER) --timeout 7200 tests/storm/test_alert_storm.py

.PHONY: test-truth
test-truth: ## Test that cluster and simulator decide the same; TRUTH_ARRIVALS=2000, TRUTH_POLICIES="fgd default"
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-truth $(PYTEST_CLUSTER) --timeout 1200 tests/truth

.PHONY: test-what-if
test-what-if: ## Test that what-if answers come true; TRUTH_QUESTIONS=500, drawn from TRUTH_SEED
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-what-if $(PYTEST_CLUSTER) --timeout 7200 tests/e2e/test_what_if.py

.PHONY: traces
traces:
	@[ -n "$(TRACES)" ] || { echo "TRACES is not set; give the folder of the openb CSVs: make $(MAKECMDGOALS) TRACES=FOLDER" >&2; exit 2; }

.PHONY: packing
packing: traces venv ## Write the tables of docs/packing.md (takes a night); TRACES=FOLDER holds the openb CSVs
	@STEP_SHOW=1 $(STEP) packing $(PY) -B benchmarks/packing.py --traces $(TRACES) --write

.PHONY: queueing
queueing: traces venv ## Write table and figure of docs/queueing/measurements.md; TRACES=FOLDER holds the openb CSVs
	@STEP_SHOW=1 $(STEP) queueing $(PY) -B benchmarks/queueing.py --traces $(TRACES) --write

.PHONY: reproduce
reproduce: traces venv ## Reproduce the published figures of FGD and best-fit on openb; TRACES=FOLDER holds the CSVs
	@STEP_SHOW=1 $(STEP) reproduce $(PY) tests/truth/reproduce.py $(TRACES)

.PHONY: fuzz
fuzz: ## Send malformed calls to the extender for FUZZ_SECONDS=300; FUZZ_SEED repeats a run
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) fuzz $(SUDO) env PYTHONPATH=tests/e2e $(PY) -B tests/fuzz/run.py \
	  --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

.PHONY: fuzz-api
fuzz-api: ## Run schemathesis on the REST API for API_FUZZ_SECONDS=600; API_FUZZ_SEED repeats a run
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) fuzz-api env PYTHONPATH=tests/e2e:tests/helpers $(PY) -B tests/fuzz/rest_api.py \
	  --seconds $(API_FUZZ_SECONDS) $(if $(API_FUZZ_SEED),--seed $(API_FUZZ_SEED))

.PHONY: wheels
wheels: venv ## Build the wheels of all components; install and try those for users in a new environment
	@$(STEP) wheels .ci/check-wheels $(COMPONENTS)

# Documents follow docs/glossary.md, except those that print texts of the code or of an older report.
PLAIN_PAGES := $(wildcard *.md) changes docs
OTHER_PAGES := docs/reports/demo-*.md,docs/reports/limited-*.md,*.html,*.json,*.svg,*.txt
# Folders whose code follows the glossary.
PLAIN_CODE := agent apiserver/compose apiserver/dashboard/src apiserver/gpupack_apiserver benchmarks charts client crds examples extender hack lib \
  operator simulator tests workloads
LINTS := lint-ruff lint-format lint-types lint-layers lint-generated lint-words lint-subjects
.PHONY: lint $(LINTS)
lint: $(LINTS) ## Check style, types, layers, generated files; needs only `make venv`; `make -k lint` shows all failures
$(LINTS): venv
lint-ruff:
	@$(STEP) ruff $(VENV)/bin/ruff check
lint-format:
	@$(STEP) ruff-format $(VENV)/bin/ruff format --check
lint-types:
	@$(STEP) mypy $(VENV)/bin/mypy
lint-layers:
	@$(STEP) layers $(VENV)/bin/lint-imports
# Text in backticks and targets of links are code, which may have older names.
lint-words:
	@$(STEP) words $(VENV)/bin/codespell --dictionary .ci/words.txt --regex '[A-Za-z]+' --ignore-regex '`[^`]*`|\]\([^)]*\)' \
	  --skip '$(OTHER_PAGES)' $(PLAIN_PAGES)
	@$(STEP) words-in-code $(VENV)/bin/codespell --dictionary .ci/words.txt --regex '[A-Za-z]+' --ignore-words-list anyone \
	  $(PLAIN_CODE)
	@! git grep -nE '\b_?MOST_[A-Z]' || { echo 'names of limits begin with MAX_, not with MOST_'; exit 1; }
# Only the newest commits are checked; a forge's shallow clone has fewer.
lint-subjects:
	@$(STEP) subjects .ci/check-subjects 20
lint-generated:
	@$(STEP) generated .ci/check-generated $(GENERATED)

.PHONY: lint-chart
lint-chart: venv ## Check the chart with helm and kubeconform, which are built if they are missing
	@[ -n "$(filter kind,$(CLUSTER))" ] || { $(STEP) go .ci/check-go && $(STEP) chart-tools $(GO_BUILD) helm kubeconform; }
	@$(STEP) chart .ci/check-chart

.PHONY: lint-dashboard
lint-dashboard: $(NODE_STAMP) ## Check style, types and generated types of the dashboard with npm's tools
	@$(STEP) lint-dashboard $(NPM) run check

.PHONY: generate
generate: venv ## Write the files that are generated from Python types and .proto files
	@$(STEP) generate-crds $(PY) -m gpupack_crds.generate crds
	@$(STEP) generate-chart-crds bash -c "cp crds/*.yaml charts/gpupack/files/crds/"
	@$(STEP) generate-dashboard $(PY) charts/dashboard.py charts/gpupack/files/monitoring/dashboard.json
	@$(STEP) generate-required-values $(PY) charts/required_values.py charts/gpupack/files/required-values.txt
	@$(STEP) generate-openapi $(PY) -m gpupack_apiserver.openapi apiserver/openapi.json
	@$(STEP) generate-choices $(PY) apiserver/dashboard/choices.py apiserver/dashboard/src/choices.ts
	@PATH=$(CURDIR)/$(VENV)/bin:$$PATH $(STEP) generate-protos $(PY) agent/generate.py

.PHONY: generate-types
generate-types: $(NODE_STAMP) ## Write the dashboard's types from apiserver/openapi.json, which make generate writes
	@$(STEP) generate-types $(NPM) run generate

.PHONY: changelog
changelog: venv ## Move the files of changes/ into CHANGELOG.md; VERSION=X.Y.Z
	@$(VENV)/bin/towncrier build --yes --version $(VERSION)

.PHONY: images
images: app-images host-images ## Build the container images

.PHONY: binaries
binaries: launcher-binary ## Build the cluster's binaries
	@STEP_SECONDS=420 $(STEP) binaries $(GO_BUILD) kube containerd helm $(TEST_BINARIES)

# The agent's image contains the launcher. It is built first, because images wait for it.
.PHONY: launcher-binary
launcher-binary: disk
	@$(STEP) go .ci/check-go
	@$(STEP) launcher-binary $(GO_BUILD) launcher

.PHONY: lock
lock: venv ## Lock the versions of all libraries with their hashes; LOCK_UPGRADE=1 takes newer ones
	@$(STEP) lock .ci/lock


# The parts of the set-up run in parallel: Go compiles from the first second, while libraries and
# images download. Only the cluster's own two images wait for Go's binaries.

.PHONY: parts
parts: $(if $(filter kind,$(CLUSTER)),kind-tools,binaries) venv images $(if $(TEST_IMAGES),prometheus)

.PHONY: prometheus
prometheus: disk ## Install Prometheus and promtool, which the tests of monitoring need
	@$(STEP) prometheus .ci/prometheus $(BIN)

.PHONY: kind-tools
kind-tools: disk
	@$(STEP) kind-tools .ci/kind-tools

.PHONY: disk
disk: | $(DEV)
	@PYTHONPATH=hack/images $(PYTHON) -m gpupack_images.disk $(DEV) $(if $(wildcard $(IMAGES_STAMP)),--set-up)

.PHONY: host
host: disk
	@$(STEP) host .ci/host-packages

.PHONY: app-images
app-images: host $(HOST_BINARIES)
	@STEP_SHOW=1 STEP_SECONDS=300 $(STEP) images $(IMAGES) build --engine $(ENGINE) torch dashboard launcher $(POD_IMAGES)
	@touch $(IMAGES_STAMP)

.PHONY: host-images
host-images: app-images $(if $(HOST_IMAGES),binaries)
	@[ -z "$(HOST_IMAGES)" ] || \
	  STEP_SHOW=1 $(STEP) host-images $(IMAGES) build --engine $(ENGINE) $(HOST_IMAGES)

.PHONY: dashboard
dashboard: $(NODE_STAMP) ## Build the page into apiserver/dashboard/dist
	@$(STEP) dashboard $(NPM) run build

$(NODE_STAMP): $(VENV_STAMP) | $(STAMPS)
	@$(STEP) npm $(NPM) ci
	@rm -f $(STAMPS)/node-* && touch $@

.PHONY: venv
venv: $(if $(BYTECODE),$(BYTECODE_STAMP),$(VENV_STAMP))

$(VENV_STAMP): | disk $(STAMPS)
	@STEP_SECONDS=60 $(STEP) venv .ci/make-venv $(PYTHON) $(VENV) $(COMPONENTS)
	@rm -f $(STAMPS)/venv-* $(STAMPS)/bytecode-* && touch $@

# Some libraries contain files of Python 2, which do not compile.
$(BYTECODE_STAMP): | $(VENV_STAMP)
	@$(STEP) bytecode bash -c "$(PY) -m compileall -qq -j 0 $(VENV)/lib || true"
	@touch $@

$(DEV) $(STAMPS):
	@mkdir -p $@
