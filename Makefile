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
# How many jobs `make test-truth` lets come and go, under which policies, drawn from which seed.
export TRUTH_ARRIVALS ?= 2000
export TRUTH_POLICIES ?= first-fit best-fit worst-fit dot-product gpu-packing gpu-clustering fgd default
export TRUTH_SEED ?= 1
# How long `make fuzz` calls; FUZZ_SEED makes the calls of a run again.
FUZZ_SECONDS ?= 300
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
COMPONENTS := core crds kube agent extender operator simulator workloads devcluster images
# Only our own cluster and its image store need root.
export SUDO := $(if $(filter kind,$(CLUSTER))$(filter 0,$(shell id -u)),,sudo -E env PATH=$(PATH))

# The Python of the host that `make gpu-bundle` packs for.
GPU_PYTHON ?= 3.12

hash = $(shell cat $(1) 2>/dev/null | sha256sum | cut -c1-12)
VENV_STAMP := $(STAMPS)/venv-$(call hash,requirements-dev.lock)
IMAGES_STAMP := $(STAMPS)/images

# The dev cluster's nodes hard-link the layers of buildah's store; kind loads from Docker.
export ENGINE := $(if $(filter kind,$(CLUSTER)),docker,buildah)
APP_IMAGES := operator extender agent judge torch workloads workloads-test
HOST_IMAGES := $(if $(filter kind,$(CLUSTER)),,pause kube-scheduler)
LOADED := $(foreach image,operator extender agent judge workloads workloads-test,docker.io/gpupack/$(image):dev) \
	$(if $(filter kind,$(CLUSTER)),,registry.k8s.io/kube-scheduler:v1.36.3)
GENERATED = $(wildcard crds/*.yaml charts/gpupack/files/crds/*.yaml agent/gpupack_agent/api/*_pb2*)


##@ For everybody

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: ## A real cluster on this machine and GPUJobs from apply to result; the cluster stays up
	@$(MAKE) cluster-up
	@$(PY) demo/run.py

.PHONY: cluster-up
cluster-up: ## Start the cluster, load the images, install the chart
	@$(MAKE) setup
	@$(STEP) cluster $(SUDO) $(PY) -m gpupack_devcluster up
	@[ -z "$(SUDO)" ] || $(SUDO) chown $(shell id -u) $(DEV)/kubeconfig
	@$(STEP) load $(SUDO) $(PY) -m gpupack_devcluster load $(LOADED)
	@$(STEP) install .ci/install-chart

.PHONY: setup
setup: ## What cluster-up needs: libraries, binaries, images; side by side
	@$(MAKE) -j4 parts

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
demo-gpu: ## As root: the cluster with the real agent, GPUJobs on this host's GPUs, a report
	@[ -e $(DEV)/gpu-bundle/facts.json -a ! -e $(VENV) ] || $(MAKE) setup
	@$(SUDO) env PYTHONPATH=devcluster $(PYTHON) demo/gpu.py

.PHONY: gpu-bundle
gpu-bundle: ## Pack what demo-gpu needs where nothing can be downloaded: .dev/gpu-bundle.tar
	@$(MAKE) binaries
	@STEP_SHOW=1 $(STEP) gpu-bundle $(PY) demo/gpu_bundle.py $(GPU_PYTHON)

.PHONY: bench-workloads
bench-workloads: ## Every workload at the sizes of docs/workloads.md; ONLY="gemm,softmax"
	@$(PYTHON) benchmarks/workloads_suite.py --only "$(ONLY)"


##@ For developers

.PHONY: test
test: ## All tests; those of the cluster on the real one
	@$(MAKE) cluster-up
	@$(MAKE) test-unit
	@$(MAKE) pytest-e2e

.PHONY: test-unit
test-unit: venv ## The tests that need no cluster
	@STEP_SHOW=1 $(STEP) test-unit $(PY) -m pytest -n auto -m "not gpu" --timeout 60 tests/unit

.PHONY: test-e2e
test-e2e: ## The tests of the cluster
	@$(MAKE) cluster-up
	@$(MAKE) pytest-e2e

# As root, which must leave nothing of its own in the checkout of who called it.
.PHONY: pytest-e2e
pytest-e2e:
	@STEP_SHOW=1 $(STEP) test-e2e $(SUDO) $(PY) -B -m pytest -m "not gpu" -o cache_dir=.dev/pytest-e2e \
	  --timeout 600 --ignore tests/e2e/edges --ignore tests/e2e/workloads tests/e2e

.PHONY: test-edges
test-edges: ## What happens at the hard edges: partitions, full disks, lost replies
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-edges $(SUDO) $(PY) -B -m pytest -m "not gpu" -o cache_dir=.dev/pytest-e2e \
	  --timeout 600 tests/e2e/edges

.PHONY: test-workloads
test-workloads: ## Every workload's example on the cluster, small
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-workloads $(SUDO) $(PY) -B -m pytest -m "not gpu" \
	  -o cache_dir=.dev/pytest-e2e --timeout 600 tests/e2e/workloads

.PHONY: workloads-table
workloads-table: venv ## Tables and figure of docs/workloads.md, from what bench-workloads left in docs/reports
	@$(PY) -B benchmarks/workloads_table.py
	@$(PY) -B benchmarks/collectives_figure.py

.PHONY: test-storm
test-storm: ## 150 GPUJobs and 10 Deployments while everything is killed; STORM_SEEDS="1 2 3 4 5"
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-storm $(SUDO) $(PY) -B -m pytest -m "not gpu" -o cache_dir=.dev/pytest-e2e \
	  --timeout 1200 tests/storm

.PHONY: test-truth
test-truth: ## Cluster and simulator decide the same: TRUTH_ARRIVALS=2000, TRUTH_POLICIES="fgd default"
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) test-truth $(SUDO) $(PY) -B -m pytest -o cache_dir=.dev/pytest-e2e \
	  --timeout 1200 tests/truth

.PHONY: traces
traces:
	@[ -n "$(TRACES)" ] || { echo "say where the openb CSVs are: make $(MAKECMDGOALS) TRACES=FOLDER" >&2; exit 2; }

.PHONY: packing
packing: traces venv ## The tables of docs/packing.md, made anew: hours; TRACES=FOLDER holds the openb CSVs
	@STEP_SHOW=1 $(STEP) packing $(PY) -B benchmarks/packing.py --traces $(TRACES) --write

.PHONY: reproduce
reproduce: traces venv ## The published figures of FGD and best-fit on openb; TRACES=FOLDER holds the CSVs
	@STEP_SHOW=1 $(STEP) reproduce $(PY) tests/truth/reproduce.py $(TRACES)

.PHONY: fuzz
fuzz: ## Malformed calls to the extender for FUZZ_SECONDS=300; FUZZ_SEED makes them again
	@$(MAKE) cluster-up
	@STEP_SHOW=1 $(STEP) fuzz $(SUDO) env PYTHONPATH=tests/e2e $(PY) -B tests/fuzz/run.py \
	  --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

LINTS := lint-ruff lint-format lint-types lint-layers lint-generated lint-chart
.PHONY: lint $(LINTS)
lint: $(LINTS) ## Style, types, layers, generated files, chart; `make -k lint` shows all that fails
$(LINTS): venv
lint-ruff:
	@$(STEP) ruff $(VENV)/bin/ruff check
lint-format:
	@$(STEP) ruff-format $(VENV)/bin/ruff format --check
lint-types:
	@$(STEP) mypy $(VENV)/bin/mypy
lint-layers:
	@$(STEP) layers $(VENV)/bin/lint-imports
lint-generated:
	@$(STEP) generated .ci/check-generated $(GENERATED)
lint-chart:
	@$(STEP) chart .ci/check-chart

.PHONY: generate
generate: venv ## Write what is generated from Python types and .proto files
	@$(STEP) generate-crds $(PY) -m gpupack_crds.generate crds
	@$(STEP) generate-chart-crds cp crds/gpujobs.yaml crds/gpunodes.yaml charts/gpupack/files/crds/
	@PATH=$(CURDIR)/$(VENV)/bin:$$PATH $(STEP) generate-protos $(PY) agent/generate.py

.PHONY: images
images: app-images host-images ## Build the container images

.PHONY: binaries
binaries: venv host ## Build the cluster's binaries
	@$(STEP) binaries $(PY) -m gpupack_devcluster build

.PHONY: lock
lock: venv ## Choose the newest versions that fit and lock them with their hashes
	@$(STEP) lock .ci/lock


# Set-up, in parts that can go on side by side: Go compiles while images download.

.PHONY: parts
parts: binaries images

.PHONY: disk
disk: | $(DEV)
	@PYTHONPATH=images $(PYTHON) -m gpupack_images.disk $(DEV) $(if $(wildcard $(IMAGES_STAMP)),--set-up)

.PHONY: host
host: disk
	@$(STEP) host .ci/host-packages

.PHONY: app-images
app-images: venv host
	@STEP_SHOW=1 $(STEP) images $(SUDO) $(PY) -m gpupack_images build --engine $(ENGINE) $(APP_IMAGES)
	@touch $(IMAGES_STAMP)

.PHONY: host-images
host-images: app-images binaries
	@[ -z "$(HOST_IMAGES)" ] || \
	  STEP_SHOW=1 $(STEP) host-images $(SUDO) $(PY) -m gpupack_images build --engine $(ENGINE) $(HOST_IMAGES)

.PHONY: venv
venv: $(VENV_STAMP)

$(VENV_STAMP): | disk $(STAMPS)
	@$(STEP) venv .ci/make-venv $(PYTHON) $(VENV) $(COMPONENTS)
	@rm -f $(STAMPS)/venv-* && touch $@

$(DEV) $(STAMPS):
	@mkdir -p $@
