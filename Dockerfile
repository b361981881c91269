# SPDX-License-Identifier: Apache-2.0
#
# One target per component; see images/gpupack_images for how they are built and named.
#
# - What changes rarely stands low: base, then the locked dependencies, then our own packages,
#   copied last, so that a change of our code makes one layer of a few kilobytes.
# - What the host needs for downloading (mirrors, proxies, certificates) comes as secrets under
#   /run/secrets; no layer keeps them. Each may be missing: a plain `docker build` works.
# - pip is never installed: it runs from Debian's wheel of it. (A stage to borrow it from would be
#   cleaner, but buildah 1.28 mounts nothing from a stage that came from its cache.)

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


# Triton compiles its launcher with gcc at run time on a GPU; torch needs libstdc++.
FROM base AS torch
ARG APT_CONFIG=/run/secrets/apt.conf DEBIAN_FRONTEND=noninteractive
RUN --mount=type=secret,id=apt.conf --mount=type=secret,id=apt.list \
    --mount=type=secret,id=apt.sources --mount=type=secret,id=ca.crt \
    apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends gcc libc6-dev libpython3-dev libstdc++6 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY workloads/requirements-torch.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    PIP_CONFIG_FILE=/run/secrets/pip.conf PYTHONPATH=/opt/pip.whl \
    python -m pip install -q --no-cache-dir --require-hashes -r /opt/locks/requirements-torch.lock


# A home that any user may write to: Triton keeps its compiled kernels there.
FROM torch AS workloads
COPY workloads/requirements.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    PIP_CONFIG_FILE=/run/secrets/pip.conf PYTHONPATH=/opt/pip.whl \
    python -m pip install -q --no-cache-dir --require-hashes -r /opt/locks/requirements.lock
ENV HOME=/tmp
USER 65532:65532
ENTRYPOINT ["python", "-m", "gpupack_workloads"]
COPY workloads /opt/gpupack/


# What operator, extender and agent have in common.
FROM base AS services
COPY requirements-services.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    PIP_CONFIG_FILE=/run/secrets/pip.conf PYTHONPATH=/opt/pip.whl \
    python -m pip install -q --no-cache-dir --require-hashes -r /opt/locks/requirements-services.lock


FROM services AS operator
COPY operator/requirements.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    PIP_CONFIG_FILE=/run/secrets/pip.conf PYTHONPATH=/opt/pip.whl \
    python -m pip install -q --no-cache-dir --require-hashes -r /opt/locks/requirements.lock
USER 65532:65532
ENTRYPOINT ["python", "-m", "gpupack_operator"]
COPY core crds kube operator /opt/gpupack/


FROM services AS extender
COPY extender/requirements.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    PIP_CONFIG_FILE=/run/secrets/pip.conf PYTHONPATH=/opt/pip.whl \
    python -m pip install -q --no-cache-dir --require-hashes -r /opt/locks/requirements.lock
USER 65532:65532
ENTRYPOINT ["python", "-m", "gpupack_extender"]
COPY core crds kube extender /opt/gpupack/


FROM services AS agent
COPY agent/requirements.lock /opt/locks/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    PIP_CONFIG_FILE=/run/secrets/pip.conf PYTHONPATH=/opt/pip.whl \
    python -m pip install -q --no-cache-dir --require-hashes -r /opt/locks/requirements.lock
ENTRYPOINT ["python", "-m", "gpupack_agent"]
COPY core crds kube agent /opt/gpupack/


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
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    PIP_CONFIG_FILE=/run/secrets/pip.conf PYTHONPATH=/opt/pip.whl \
    python -m pip install -q --no-cache-dir --require-hashes -r /opt/locks/requirements-test.lock
# One thread: tests fork ranks, and a pool of threads does not survive a fork.
ENV HOME=/tmp OMP_NUM_THREADS=1
USER 65532:65532
WORKDIR /opt/gpupack
ENTRYPOINT ["python", "-m", "pytest", "-p", "no:cacheprovider", "-n", "2"]
COPY workloads tests/workloads_image /opt/gpupack/


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
