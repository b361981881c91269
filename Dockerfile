# SPDX-License-Identifier: Apache-2.0
#
# One target per component; see hack/images/gpupack_images for how they are built and named.
#
# - What changes rarely stands low: base, then the locked dependencies, then our own packages,
#   copied last, so that a change of our code makes one layer of a few kilobytes. Where a leader may be
#   waited for, their bytecode follows: a pod cannot write it, and would compile them at every start.
# - What the host needs for downloading (mirrors, proxies, certificates) comes as secrets under
#   /run/secrets; no layer keeps them. Each may be missing: a plain `docker build` works.
# - pip and uv are never installed: pip runs from Debian's wheel of it, uv from a cache of the builder.
#   (A stage to borrow them from would be cleaner, but buildah 1.28 mounts nothing from a stage that
#   came from its cache.)

ARG LAUNCHER=launcher-from-source

FROM docker.io/library/debian:bookworm-slim AS base
ARG APT_CONFIG=/run/secrets/apt.conf DEBIAN_FRONTEND=noninteractive
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/opt/gpupack \
    PYTHONUNBUFFERED=1
RUN --mount=type=secret,id=apt.conf --mount=type=secret,id=apt.list \
    --mount=type=secret,id=apt.sources --mount=type=secret,id=ca.crt \
    apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends python3 python3-pip-whl \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
    && python3 -m venv --without-pip /opt/venv \
    && ln -s /usr/share/python-wheels/pip-*.whl /opt/pip.whl
COPY hack/images/install-locked hack/images/uv.lock /opt/locks/


# The launcher of gangs by mpirun: one static binary, which runs in any image. Who builds an image by hand
# has it compiled here by the Go that Debian has; `make` compiles it on the host, next to the cluster's
# binaries, and sets LAUNCHER=launcher-of-the-host, which saves Debian's Go.
FROM base AS launcher-from-source
ARG APT_CONFIG=/run/secrets/apt.conf DEBIAN_FRONTEND=noninteractive
RUN --mount=type=secret,id=apt.conf --mount=type=secret,id=apt.list \
    --mount=type=secret,id=apt.sources --mount=type=secret,id=ca.crt \
    apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends golang-go \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
WORKDIR /src
COPY agent/launcher ./
RUN HOME=/tmp CGO_ENABLED=0 GOFLAGS=-mod=mod \
    go build -trimpath -ldflags '-s -w' -o /opt/gpupack-mpi/gpupack-mpi . \
    && rm -rf /tmp/.cache


FROM scratch AS launcher-of-the-host
COPY .dev/bin/launcher /opt/gpupack-mpi/gpupack-mpi


FROM ${LAUNCHER} AS launcher


# Triton compiles its launcher with gcc at run time on a GPU; torch needs libstdc++.
FROM base AS torch
ARG APT_CONFIG=/run/secrets/apt.conf DEBIAN_FRONTEND=noninteractive
RUN --mount=type=secret,id=apt.conf --mount=type=secret,id=apt.list \
    --mount=type=secret,id=apt.sources --mount=type=secret,id=ca.crt \
    apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends gcc libc6-dev libpython3-dev libstdc++6 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY workloads/requirements-torch.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements-torch.lock


# A home that any user may write to: Triton keeps its compiled kernels there.
FROM torch AS workloads
COPY workloads/requirements.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements.lock
ENV HOME=/tmp
USER 65532:65532
ENTRYPOINT ["python", "-m", "gpupack_workloads"]
COPY workloads/kernels /opt/gpupack/
COPY workloads/gpupack_workloads /opt/gpupack/gpupack_workloads


# ThunderKittens' headers, which the workload of that name compiles against: by GitHub, at one commit, so no
# other target needs it. Nothing of it is in this repository.
FROM base AS thunderkittens
ARG APT_CONFIG=/run/secrets/apt.conf DEBIAN_FRONTEND=noninteractive
RUN --mount=type=secret,id=apt.conf --mount=type=secret,id=apt.list \
    --mount=type=secret,id=apt.sources --mount=type=secret,id=ca.crt \
    apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends ca-certificates git \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
ARG THUNDERKITTENS=https://github.com/HazyResearch/ThunderKittens.git
ARG THUNDERKITTENS_COMMIT=0b55588d2769dde0c7a9a606ffc015b0ca7a9551
WORKDIR /opt/thunderkittens
RUN --mount=type=secret,id=ca.crt \
    if [ -s /run/secrets/ca.crt ]; then export GIT_SSL_CAINFO=/run/secrets/ca.crt; fi \
    && git init -q . \
    && git fetch -q --depth 1 "$THUNDERKITTENS" "$THUNDERKITTENS_COMMIT" \
    && git checkout -q FETCH_HEAD -- LICENSE include \
    && rm -rf .git


# NVRTC comes with torch and takes these headers, so there is no nvcc.
FROM workloads AS workloads-thunderkittens
COPY --from=thunderkittens /opt/thunderkittens /opt/thunderkittens
ENV TK_ROOT=/opt/thunderkittens


# A person's own session: JupyterLab with the same torch. It asks no address outside for news.
FROM torch AS notebook
COPY workloads/requirements-notebook.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements-notebook.lock \
    && install -d -o 65532 -g 65532 /work /opt/venv/share/jupyter/lab/settings
COPY hack/images/jupyterlab.json /opt/venv/share/jupyter/lab/settings/overrides.json
ENV HOME=/tmp
USER 65532:65532
WORKDIR /work
ENTRYPOINT ["jupyter", "lab", "--ip=0.0.0.0", "--port=8888", "--no-browser"]
COPY workloads/kernels /opt/gpupack/
COPY workloads/gpupack_workloads /opt/gpupack/gpupack_workloads


# TensorFlow without torch. As it is built by default it computes on CPUs alone, which is a fifth of the
# size; for GPUs: --build-arg TENSORFLOW=tensorflow-cuda.
FROM base AS tensorflow
ARG APT_CONFIG=/run/secrets/apt.conf DEBIAN_FRONTEND=noninteractive
RUN --mount=type=secret,id=apt.conf --mount=type=secret,id=apt.list \
    --mount=type=secret,id=apt.sources --mount=type=secret,id=ca.crt \
    apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends libstdc++6 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
ARG TENSORFLOW=tensorflow
COPY workloads/requirements-tensorflow.lock workloads/requirements-tensorflow-cuda.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements-${TENSORFLOW}.lock
ENV HOME=/tmp
USER 65532:65532
ENTRYPOINT ["python", "-m", "gpupack_workloads"]
COPY client workloads/kernels /opt/gpupack/
COPY workloads/gpupack_workloads /opt/gpupack/gpupack_workloads


# What operator, extender and agent have in common.
FROM base AS services
COPY requirements-services.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements-services.lock


FROM services AS operator
COPY operator/requirements.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements.lock
COPY lib/devices lib/placement lib/queue crds lib/kubeclient lib/httpserver operator /opt/gpupack/
RUN python -m compileall -q --invalidation-mode unchecked-hash /opt/gpupack
USER 65532:65532
ENTRYPOINT ["python", "-m", "gpupack_operator"]


FROM services AS extender
COPY extender/requirements.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements.lock
COPY lib/devices lib/placement lib/queue crds lib/kubeclient lib/scheduler lib/httpserver extender /opt/gpupack/
RUN python -m compileall -q --invalidation-mode unchecked-hash /opt/gpupack
USER 65532:65532
ENTRYPOINT ["python", "-m", "gpupack_extender"]


# The page that the api serves. Node and npm come as Python wheels: so their version is locked by its
# hash as all else is, and Debian's npm with its 400 packages stays out.
FROM base AS dashboard
COPY apiserver/dashboard/requirements.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements.lock
WORKDIR /opt/dashboard
COPY apiserver/dashboard/package.json apiserver/dashboard/package-lock.json apiserver/dashboard/.npmrc ./
RUN --mount=type=secret,id=npmrc --mount=type=secret,id=ca.crt \
    NPM_CONFIG_USERCONFIG=/run/secrets/npmrc NPM_CONFIG_CACHE=/tmp/npm \
    npm ci --omit=dev && rm -rf /tmp/npm
COPY apiserver/dashboard/build.ts ./
COPY apiserver/dashboard/src src
RUN node build.ts /opt/page


FROM services AS api
COPY apiserver/requirements.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements.lock
COPY --from=dashboard /opt/page /opt/page
# Where one machine's server (gpupack_apiserver.host) keeps its token: a volume that is new takes its owner.
RUN install -d -o 65532 -g 65532 -m 0700 /var/lib/gpupack
ENV GPUPACK_PAGE_FOLDER=/opt/page
USER 65532:65532
ENTRYPOINT ["python", "-m", "gpupack_apiserver"]
COPY lib/devices lib/restapi lib/placement lib/queue lib/cost crds lib/kubeclient lib/scheduler lib/httpserver client apiserver /opt/gpupack/


FROM services AS agent
COPY agent/requirements.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements.lock
COPY --from=launcher /opt/gpupack-mpi /opt/gpupack-mpi
ENTRYPOINT ["python", "-m", "gpupack_agent"]
COPY lib/devices crds lib/kubeclient lib/httpserver agent /opt/gpupack/


# What the tests run in pods. Debian's libfaketime, which the tests lend to other pods, makes a clock
# jump for one process alone.
FROM base AS judge
ARG APT_CONFIG=/run/secrets/apt.conf DEBIAN_FRONTEND=noninteractive
RUN --mount=type=secret,id=apt.conf --mount=type=secret,id=apt.list \
    --mount=type=secret,id=apt.sources --mount=type=secret,id=ca.crt \
    apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends libfaketime \
    && cp /usr/lib/*/faketime/libfaketime.so.1 /libfaketime.so \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
USER 65532:65532
ENTRYPOINT ["python3", "-S", "/judge.py"]
COPY tests/e2e/judge /


FROM torch AS workloads-test
COPY workloads/requirements-test.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements-test.lock
COPY --from=launcher /opt/gpupack-mpi /opt/gpupack-mpi
# One thread: tests fork ranks, and a pool of threads does not survive a fork.
ENV HOME=/tmp OMP_NUM_THREADS=1
USER 65532:65532
WORKDIR /opt/gpupack
ENTRYPOINT ["python", "-m", "pytest", "-p", "no:cacheprovider", "-n", "2"]
COPY workloads/kernels tests/workloads_image /opt/gpupack/
COPY workloads/gpupack_workloads /opt/gpupack/gpupack_workloads


FROM tensorflow AS tensorflow-test
USER 0:0
COPY workloads/requirements-tensorflow-test.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=uv.env --mount=type=secret,id=ca.crt \
    --mount=type=cache,target=/var/cache/uv \
    /opt/locks/install-locked requirements-tensorflow-test.lock
USER 65532:65532
WORKDIR /opt/gpupack
ENTRYPOINT ["python", "-m", "pytest", "-p", "no:cacheprovider"]
COPY tests/tensorflow_image /opt/gpupack/


# What the dev cluster needs and cannot pull: binaries that it has built on the host.
# (COPY comes first: buildah caches nothing that follows an empty step on scratch.)
FROM scratch AS pause
COPY .dev/bin/pause /pause
USER 65535:65535
ENTRYPOINT ["/pause"]


FROM scratch AS kube-scheduler
COPY .dev/bin/kube /usr/local/bin/kube-scheduler
ENV PATH=/usr/local/bin
USER 65532:65532
ENTRYPOINT ["kube-scheduler"]


# Controllers of other projects, for tests of the gangs that they create.
FROM scratch AS controllers
COPY .dev/bin/controller-* /
USER 65532:65532
