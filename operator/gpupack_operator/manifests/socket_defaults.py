# SPDX-License-Identifier: Apache-2.0
"""Settings of NCCL for workers that have only TCP sockets between nodes.

NCCL opens few sockets for each peer and drives them with few threads, which leaves most of a fast
network unused. A worker with an RDMA device has a faster path, so nothing is set there.

    256 MiB all_reduce between two pods with one H200 each: 2.5-3.0 GB/s, with these 9.2 GB/s
"""

from collections.abc import Iterator
from typing import Any, Final

from gpupack_crds.gpujob import Distributed, GpuJobSpec
from gpupack_kubeclient.objects import Json
from gpupack_operator.manifests.containers import with_changed, with_default_variables

SOCKETS: Final = {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "8"}
"""32 sockets for each connection; NCCL accepts at most 64."""

RDMA_PREFIXES: Final = (
    "rdma/",
    "nvidia.com/hostdev",
    "nvidia.com/mlnxnics",
    "nvidia.com/sriov",
    "nvidia.com/rdma",
    "mellanox.com/",
    "openshift.io/mlnx",
    "vpc.amazonaws.com/efa",
    "networking.gke.io.networks/rdma",
    "aliyun/erdma",
)
"""Prefixes of the names of RDMA resources; docs/communication.md names the plugin of each."""


def with_socket_defaults(pod_spec: Json, spec: GpuJobSpec, *, container: str) -> Json:
    """Return the pod's spec with settings of NCCL's sockets if a gang may use them.

    Args:
        pod_spec: merged with the user's template, whose variables stay unchanged.
        spec: the GPUJob's.
        container: name of the worker container.
    """
    if not _may_use_nccl(spec):
        return pod_spec
    return with_changed(pod_spec, {container}, _with_defaults)


def _may_use_nccl(spec: GpuJobSpec) -> bool:
    """Tell whether the job may use NCCL.

    The backend gloo has other settings and is the default for shares and MIG.
    """
    backend = (spec.distributed or Distributed()).backend
    shares = bool(spec.share or spec.mig) or any(role.share for role in spec.roles)
    is_for_gloo = backend == "gloo" or (backend == "auto" and shares)
    return spec.workers > 1 and not is_for_gloo


def _with_defaults(container: Json) -> Json:
    if _has_rdma(container):
        return container
    variables = ({"name": name, "value": value} for name, value in SOCKETS.items())
    return with_default_variables(container, variables)


def _has_rdma(container: Json) -> bool:
    return any(name.startswith(RDMA_PREFIXES) for name in _requested_resources(container))


def _requested_resources(container: Json) -> Iterator[str]:
    """Yield the names in limits and requests; the template is as the user wrote it."""
    resources: Any = container.get("resources")
    for kind in ("limits", "requests"):
        found = resources.get(kind) if isinstance(resources, dict) else None
        yield from found if isinstance(found, dict) else ()
