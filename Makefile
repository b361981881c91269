# SPDX-License-Identifier: Apache-2.0
#
# Everything is made below .dev/. Targets can be interrupted and run again: what stands is kept, by
# content (stamps named by a hash), not by time. Every step prints its seconds and logs to .dev/log/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# devcluster: our own nodes on this host's kernel; kind: plain kind, where Docker is.
export CLUSTER ?= devcluster
# What `make test-storm` draws its jobs and its kills from, one storm each.
export STORM_SEEDS ?= 1 2 3 4 5
# The same for `make test-queue-storm`.
QUEUE_STORM_SEEDS ?= 1 2
# How long `make test-alerts` breaks things, drawn from which seed.
export ALERT_STORM_SECONDS ?= 3600
export ALERT_STORM_SEED ?= 1
# How many jobs `make test-truth` lets come and go, under which policies, drawn from which seed.
export TRUTH_ARRIVALS ?= 2000
export TRUTH_POLICIES ?= first-fit best-fit worst-fit dot-product gpu-packing gpu-clustering fgd default
export TRUTH_SEED ?= 1
# How many questions `make test-what-if` asks.
test-what-if: export TRUTH_QUESTIONS ?= 500
# How long `make fuzz` calls; FUZZ_SEED makes the calls of a run again.
FUZZ_SECONDS ?= 300
# The same of `make fuzz-api`.
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
# Only our own cluster and its image store need root.
export SUDO := $(if $(filter kind,$(CLUSTER))$(filter 0,$(shell id -u)),,sudo -E env PATH=$(PATH))

# Builds images with Python's own libraries alone.
IMAGES := $(SUDO) env PYTHONPATH=hack/images $(PYTHON) -B -m gpupack_images

# Builds binaries with Python's own libraries and Go.
GO_BUILD := env PYTHONPATH=hack/devcluster $(PYTHON) -B -m gpupack_devcluster.build $(BIN)

# The Python of the host that `make gpu-bundle` packs for.
GPU_PYTHON ?= 3.12

hash = $(shell cat $(1) 2>/dev/null | sha256sum | cut -c1-12)
VENV_STAMP := $(STAMPS)/venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')-$(call hash,requirements-dev.lock .ci/make-venv $(COMPONENTS:%=%/pyproject.toml))
# Every library compiled to bytecode, which Python does not write by itself with -B. The demo imports few of
# them, and does without: that is 45 s of processor time.
BYTECODE ?= yes
BYTECODE_STAMP := $(VENV_STAMP:$(STAMPS)/venv-%=$(STAMPS)/bytecode-%)
IMAGES_STAMP = $(STAMPS)/images-$(ENGINE)

# The dev cluster's nodes hard-link the layers of buildah's store; kind loads from Docker, or where
# that has no buildx, archives that buildah writes.
export ENGINE := $(if $(filter kind,$(CLUSTER)),auto,buildah)
# What all tests and `make lint-chart` need beside what the demo needs.
TEST_IMAGES ?= judge workloads-test notebook tensorflow tensorflow-test
TEST_BINARIES ?= kwok kubeconform
# The part of it that `make test` and CI need.
setup-test test test-cluster: export TEST_IMAGES = judge
setup-test test test-cluster: export TEST_BINARIES = kubeconform
POD_IMAGES := operator extender api agent workloads $(TEST_IMAGES)
# Where there is Go, the launcher of gangs is compiled on the host, not in its image.
ifneq ($(CLUSTER),kind)
HOST_BINARIES := launcher-binary
export LAUNCHER := launcher-of-the-host
endif
HOST_IMAGES := $(if $(filter kind,$(CLUSTER)),,pause kube-scheduler)
# What fails runs once more, by itself, when its suite has ended.
PYTEST := .ci/rerun-failed $(PY) -B -m pytest
# As root, which must leave nothing of its own in the checkout of who called it.
PYTEST_CLUSTER := $(SUDO) $(PYTEST) --durations 25
# How many tests share the cluster at once: they wait more than they compute.
BESIDE ?= 4
# How many unit tests run at once: one more than there are cores, since many of them wait.
UNIT_BESIDE ?= $(shell expr $$(nproc) + 1)
E2E := --ignore tests/e2e/edges --ignore tests/e2e/workloads tests/e2e
# Node comes with the virtual environment; what it needs for the dashboard is downloaded once.
NODE_STAMP := $(STAMPS)/node-$(call hash,apiserver/dashboard/package-lock.json)
NPM := env PATH=$(CURDIR)/$(VENV)/bin:$(PATH) npm --prefix apiserver/dashboard
GENERATED = $(wildcard crds/*.yaml charts/gpupack/files/crds/*.yaml charts/gpupack/files/monitoring/*.json charts/gpupack/files/required-values.txt agent/gpupack_agent/api/*_pb2*)


##@ For everybody

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: ## A real cluster on this machine and GPUJobs from apply to result; the cluster stays up
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
setup: ## What cluster-up needs: libraries, binaries, images; side by side
	@$(MAKE) -j4 parts

.PHONY: setup-test
setup-test: setup

.PHONY: cluster-down
cluster-down: ## Stop the cluster; its data stay for the next start
	@$(STEP) cluster-down $(SUDO) $(PY) -m gpupack_devcluster down

.PHONY: clean
clean: ## Stop the cluster and delete everything that was made
	@[ ! -x $(PY) ] || $(STEP) cluster-reset $(SUDO) $(PY) -m gpupack_devcluster reset
	@# An image build that was interrupted leaves mounts behind.
	@awk -v below=$(CURDIR)/$(DEV)/ 'index($$2, below) == 1 {print $$2}' /proc/mounts | sort -r | \
	  xargs -r $(SUDO) umount
	@$(SUDO) rm -rf $(DEV)


##@ On a host with NVIDIA GPUs

.PHONY: demo-gpu
demo-gpu: ## As root: the cluster with the real agent, jobs on the GPUs, a report; DEMO_GPU=--only-gangs
	@[ -e $(DEV)/gpu-bundle/facts.json -a ! -e $(VENV) ] || $(MAKE) setup
	@$(SUDO) env PYTHONPATH=hack/devcluster $(PYTHON) hack/gpu-acceptance/gpu.py $(DEMO_GPU)

.PHONY: preflight
preflight: ## Whether this host is ready for gpupack, and what to change; changes nothing
	@$(MAKE) venv
	@$(SUDO) $(PY) -m gpupack_agent preflight

.PHONY: gpu-bundle
gpu-bundle: ## Pack what demo-gpu needs where nothing can be downloaded: .dev/gpu-bundle.tar
	@$(MAKE) binaries venv host
	@STEP_SHOW=1 $(STEP) gpu-bundle $(PY) hack/gpu-acceptance/gpu_bundle.py $(GPU_PYTHON)

.PHONY: bench-workloads
bench-workloads: ## Every workload at the sizes of docs/workloads; ONLY="gemm,softmax"
	@$(PYTHON) benchmarks/workloads_suite.py --only "$(ONLY)"


##@ For developers

.PHONY: test
test: ## What every change can break: the unit tests, and on the real cluster those that are not slow
	@$(MAKE) -j1 --keep-going test-unit test-cluster

.PHONY: test-cluster
test-cluster: ## Of the tests on the cluster those that are not slow
	@$(MAKE) cluster-up
	@$(MAKE) pytest-e2e BUT="and not slow"

.PHONY: test-all
test-all: ## Those of `make test`, the slow ones, every workload, browser, host, wheels; CI does not run it
	@$(MAKE) -j1 --keep-going wheels test-unit test-browser test-host test-workloads launchers test-e2e

.PHONY: test-unit
test-unit: venv ## The tests that need no cluster
	@STEP_SHOW=1 $(STEP) test-unit $(PYTEST) -n $(UNIT_BESIDE) -m "not gpu" --timeout 120 --durations 25 tests/unit

.PHONY: test-launcher
test-launcher: venv ## go vet and the tests of the launcher, where there is Go; make test-unit runs them, too
	@STEP_SHOW=1 $(STEP) test-launcher $(PY) -m pytest tests/unit/launcher

.PHONY: test-frameworks
test-frameworks: venv ## The examples of docs/python.md with PyTorch and TensorFlow on the CPU; downloads some GB
	@$(PY) -m pip install -q --upgrade --target $(DEV)/frameworks torch tensorflow-cpu
	@PYTHONPATH=$(DEV)/frameworks $(PY) -m pytest --timeout 180 tests/unit/client/test_page.py

.PHONY: test-launchers
test-launchers: ## examples/launchers on the cluster: ranks by torchrun, Accelerate, DeepSpeed, Lightning, …
	@$(MAKE) cluster-up launchers
	@STEP_SHOW=1 $(STEP) test-launchers $(PYTEST_CLUSTER) --timeout 600 tests/e2e/test_launchers.py

.PHONY: launchers
launchers: venv ## What examples/launchers needs besides torch, in a folder that pods mount
	@$(STEP) launchers .ci/launchers $(PY) $(DEV)/launchers

.PHONY: test-browser
test-browser: dashboard chromium ## The dashboard in a browser, on the REST API with a made-up cluster
	@$(STEP) test-dashboard $(NPM) test
	@STEP_SHOW=1 $(STEP) test-browser $(PY) -B -m pytest --durations 5 --timeout 120 tests/browser

# As root, on the store that buildah builds in.
.PHONY: test-host
test-host: venv host podman $(HOST_BINARIES) ## One machine without a cluster: API, page and agent by podman-compose
	@STEP_SECONDS=300 $(STEP) host-parts $(IMAGES) build --engine buildah dashboard launcher api agent
	@STEP_SHOW=1 $(STEP) test-host $(SUDO) env PATH=$(CURDIR)/$(DEV)/podman-compose/bin:$(PATH) \
	  PYTHONPATH=$(CURDIR)/$(DEV)/podman-compose CONTAINERS_STORAGE_CONF=$(CURDIR)/$(DEV)/images/storage.conf \
	  $(PY) -B -m pytest -o cache_dir=$(DEV)/pytest-host --durations 5 --timeout 240 tests/host

# Debian's podman-compose is too old: it knows no `pid: host`.
.PHONY: podman
podman: venv
	@command -v podman >/dev/null || $(STEP) podman .ci/apt-install podman
	@[ -x $(DEV)/podman-compose/bin/podman-compose ] || $(STEP) podman-compose \
	  $(PY) -m pip install -q --target $(DEV)/podman-compose podman-compose==1.6.0

.PHONY: screenshots
screenshots: dashboard chromium ## The pictures of docs/dashboard.md, made anew
	@$(STEP) screenshots $(PY) -B tests/browser/screenshots.py

.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || $(STEP) chromium .ci/apt-install chromium

.PHONY: test-e2e
test-e2e: ## All of tests/e2e but the workloads and the hard edges
	@$(MAKE) cluster-up
	@$(MAKE) pytest-e2e

# First the tests that share the cluster, side by side, then those that need it for themselves.
.PHONY: pytest-e2e
pytest-e2e:
	@$(MAKE) -j1 --keep-going pytest-beside pytest-alone

.PHONY: pytest-alone
pytest-alone:
	@STEP_SHOW=1 $(STEP) test-alone $(PYTEST_CLUSTER) --timeout 600 -m "not gpu and alone $(BUT)" $(E2E)

.PHONY: pytest-beside
pytest-beside:
	@STEP_SHOW=1 $(STEP) test-beside $(PYTEST_CLUSTER) -n $(BESIDE) --dist loadfile --timeout 600 \
	  -m "not gpu and not alone $(BUT)" $(E2E)

.PHONY: test-edges
test-edges: ## What happens at the hard edges: partitions, full disks, lost replies
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-edges $(PYTEST_CLUSTER) --timeout 600 tests/e2e/edges

.PHONY: test-workloads
test-workloads: ## Every workload's example on the cluster, small, and their tests in the image
	@$(MAKE) cluster-up
	@$(MAKE) pytest-workloads

.PHONY: pytest-workloads
pytest-workloads:
	@STEP_SHOW=1 $(STEP) test-workloads $(PYTEST_CLUSTER) --timeout 600 -m "not gpu $(BUT)" tests/e2e/workloads

.PHONY: workloads-table
workloads-table: venv ## Tables and figures of docs/workloads, from what benchmarks left in docs/reports
	@$(PY) -B benchmarks/workloads_table.py
	@$(PY) -B benchmarks/collectives_figure.py
	@$(PY) -B benchmarks/train_cnn_figure.py
	@$(PY) -B benchmarks/inference_shares.py --table

.PHONY: test-storm
test-storm: ## 150 GPUJobs and 10 Deployments while everything is killed; STORM_SEEDS="1 2 3 4 5"
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-storm $(PYTEST_CLUSTER) --timeout 1200 tests/storm/test_mixed_storm.py

.PHONY: test-kinds-storm
test-kinds-storm: ## Whole GPUs, shares, MIG slices and two other vendors while all is killed; STORM_SEEDS="1 2"
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-kinds-storm $(PYTEST_CLUSTER) --timeout 1200 tests/storm/test_kinds_storm.py

# Its own seeds: each takes a quarter of an hour.
test-queue-storm: export STORM_SEEDS = $(QUEUE_STORM_SEEDS)
.PHONY: test-queue-storm
test-queue-storm: ## 500 GPUJobs of six namespaces with quotas while all fails; QUEUE_STORM_SEEDS="1 2"
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-queue-storm $(PYTEST_CLUSTER) --timeout 2400 tests/storm/test_queue_storm.py

.PHONY: test-alerts
test-alerts: ## Alerts fire for what is broken and for nothing else; ALERT_STORM_SECONDS=3600
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-alerts $(PYTEST_CLUSTER) --timeout 7200 tests/storm/test_alert_storm.py

.PHONY: test-truth
test-truth: ## Cluster and simulator decide the same: TRUTH_ARRIVALS=2000, TRUTH_POLICIES="fgd default"
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-truth $(PYTEST_CLUSTER) --timeout 1200 tests/truth

.PHONY: test-what-if
test-what-if: ## What-if answers are what then happens: TRUTH_QUESTIONS=500, drawn from TRUTH_SEED
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-what-if $(PYTEST_CLUSTER) --timeout 7200 tests/e2e/test_what_if.py

.PHONY: traces
traces:
	@[ -n "$(TRACES)" ] || { echo "say where the openb CSVs are: make $(MAKECMDGOALS) TRACES=FOLDER" >&2; exit 2; }

.PHONY: packing
packing: traces venv ## The tables of docs/packing.md, made anew: hours; TRACES=FOLDER holds the openb CSVs
	@STEP_SHOW=1 $(STEP) packing $(PY) -B benchmarks/packing.py --traces $(TRACES) --write

.PHONY: queueing
queueing: traces venv ## Write table and figure of docs/queueing/measurements.md; TRACES=FOLDER holds the openb CSVs
	@STEP_SHOW=1 $(STEP) queueing $(PY) -B benchmarks/queueing.py --traces $(TRACES) --write

.PHONY: reproduce
reproduce: traces venv ## The published figures of FGD and best-fit on openb; TRACES=FOLDER holds the CSVs
	@STEP_SHOW=1 $(STEP) reproduce $(PY) tests/truth/reproduce.py $(TRACES)

.PHONY: fuzz
fuzz: ## Malformed calls to the extender for FUZZ_SECONDS=300; FUZZ_SEED makes them again
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) fuzz $(SUDO) env PYTHONPATH=tests/e2e $(PY) -B tests/fuzz/run.py \
	  --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

.PHONY: fuzz-api
fuzz-api: ## schemathesis on the REST API for API_FUZZ_SECONDS=600; API_FUZZ_SEED makes the calls again
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) fuzz-api env PYTHONPATH=tests/e2e:tests/helpers $(PY) -B tests/fuzz/rest_api.py \
	  --seconds $(API_FUZZ_SECONDS) $(if $(API_FUZZ_SEED),--seed $(API_FUZZ_SEED))

.PHONY: wheels
wheels: venv ## Wheels of all components, those for users tried in an environment of their own
	@$(STEP) wheels .ci/check-wheels $(COMPONENTS)

# Documents follow docs/glossary.md, but those that print texts of the code or of a report as it was.
PLAIN_PAGES := $(wildcard *.md) changes docs
OTHER_PAGES := docs/dcgm.md,docs/monitoring.md,docs/simulator.md,docs/reports/demo-*.md,docs/reports/limited-*.md,*.html,*.json,*.svg,*.txt
# Folders whose code follows the glossary; the others are renamed one after the other.
PLAIN_CODE := agent apiserver/compose examples extender hack/images lib operator simulator \
  $(addprefix tests/,browser fuzz host storm tensorflow_image truth typing) \
  $(addprefix tests/unit/,agent ci cost devices docs e2e extender helpers httpserver images judge kubeclient launcher \
    monitoring placement queue scheduler simulator storm terminal truth)
LINTS := lint-ruff lint-format lint-types lint-layers lint-generated lint-words lint-subjects
.PHONY: lint $(LINTS)
lint: $(LINTS) ## Style, types, layers, generated files; needs `make venv` alone; `make -k lint` shows all that fails
$(LINTS): venv
lint-ruff:
	@$(STEP) ruff $(VENV)/bin/ruff check
lint-format:
	@$(STEP) ruff-format $(VENV)/bin/ruff format --check
lint-types:
	@$(STEP) mypy $(VENV)/bin/mypy
lint-layers:
	@$(STEP) layers $(VENV)/bin/lint-imports
# Text in backticks and targets of links are code, which may still have older names.
lint-words:
	@$(STEP) words $(VENV)/bin/codespell --dictionary .ci/words.txt --regex '[A-Za-z]+' --ignore-regex '`[^`]*`|\]\([^)]*\)' \
	  --skip '$(OTHER_PAGES)' $(PLAIN_PAGES)
	@$(STEP) words-in-code $(VENV)/bin/codespell --dictionary .ci/words.txt --regex '[A-Za-z]+' --ignore-words-list anyone \
	  $(PLAIN_CODE)
	@! git grep -nE '\b_?MOST_[A-Z]' || { echo 'names of limits begin with MAX_, not with MOST_'; exit 1; }
# Of the commits since the rule the newest are looked at; a forge's shallow clone has fewer.
lint-subjects:
	@$(STEP) subjects .ci/check-subjects 20
lint-generated:
	@$(STEP) generated .ci/check-generated $(GENERATED)

.PHONY: lint-chart
lint-chart: venv ## The chart, by helm and kubeconform, which are built if they are not there
	@[ -n "$(filter kind,$(CLUSTER))" ] || { $(STEP) go .ci/check-go && $(STEP) chart-tools $(GO_BUILD) helm kubeconform; }
	@$(STEP) chart .ci/check-chart

.PHONY: lint-dashboard
lint-dashboard: $(NODE_STAMP) ## Style and types of the dashboard, by what npm downloads
	@$(STEP) lint-dashboard $(NPM) run check

.PHONY: generate
generate: venv ## Write what is generated from Python types and .proto files
	@$(STEP) generate-crds $(PY) -m gpupack_crds.generate crds
	@$(STEP) generate-chart-crds bash -c "cp crds/*.yaml charts/gpupack/files/crds/"
	@$(STEP) generate-dashboard $(PY) charts/dashboard.py charts/gpupack/files/monitoring/dashboard.json
	@$(STEP) generate-required-values $(PY) charts/required_values.py charts/gpupack/files/required-values.txt
	@$(STEP) generate-choices $(PY) apiserver/dashboard/choices.py apiserver/dashboard/src/choices.ts
	@PATH=$(CURDIR)/$(VENV)/bin:$$PATH $(STEP) generate-protos $(PY) agent/generate.py

.PHONY: changelog
changelog: venv ## Move the files of changes/ into CHANGELOG.md; VERSION=X.Y.Z
	@$(VENV)/bin/towncrier build --yes --version $(VERSION)

.PHONY: images
images: app-images host-images ## Build the container images

.PHONY: binaries
binaries: launcher-binary ## Build the cluster's binaries
	@STEP_SECONDS=420 $(STEP) binaries $(GO_BUILD) kube containerd helm $(TEST_BINARIES)

# The agent's image holds it. It comes first: images wait for it.
.PHONY: launcher-binary
launcher-binary: disk
	@$(STEP) go .ci/check-go
	@$(STEP) launcher-binary $(GO_BUILD) launcher

.PHONY: lock
lock: venv ## Choose the newest versions that fit and lock them with their hashes
	@$(STEP) lock .ci/lock


# Set-up, in parts that go on side by side: Go compiles from the first second, while libraries and
# images download. Only the cluster's own two images wait for what Go has made.

.PHONY: parts
parts: $(if $(filter kind,$(CLUSTER)),kind-tools,binaries) venv images $(if $(TEST_IMAGES),prometheus)

.PHONY: prometheus
prometheus: disk ## Prometheus and promtool, which the tests of monitoring ask
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

# Some libraries bring files of Python 2.
$(BYTECODE_STAMP): | $(VENV_STAMP)
	@$(STEP) bytecode bash -c "$(PY) -m compileall -qq -j 0 $(VENV)/lib || true"
	@touch $@

$(DEV) $(STAMPS):
	@mkdir -p $@
