# SPDX-License-Identifier: Apache-2.0
"""How a worker's container asks for its GPUs, and whether a pod asks for just that.

ResourceQuota counts what a pod asks for, so a pod that asks for less is no proof that the namespace
may have a worker. CPU and memory are not looked at: admission may set them, a resize change them.
"""

from collections.abc import Mapping

from gpupack_crds import names, quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_kube.objects import Pod

Quantities = Mapping[str, str | int | float]

OURS = frozenset({names.GPU, names.GPU_SHARE, names.GPU_PERCENT, names.GPU_MEMORY})


def limits(spec: GpuJobSpec) -> dict[str, str]:
    """Limits of the worker container: whole GPUs, MIG slices, or a share of a GPU.

    A share's memory in whole MiB, as the ledger counts it: Kubernetes takes integers alone for such
    a resource, and 0.1Gi is not a whole number of bytes.
    """
    if spec.mig is not None:
        return {names.mig_resource(spec.mig): str(spec.gpus or 1)}
    if spec.share is None:
        return {spec.resource_name: str(spec.gpus or 1)}
    return {
        names.GPU_SHARE: "1",
        names.GPU_PERCENT: str(spec.share.percent),
        names.GPU_MEMORY: f"{quantity.mebibytes(spec.share.memory)}Mi",
    }


def gpu_containers(pod: Pod, wanted: Quantities) -> tuple[str, ...]:
    """The names of the containers that each ask for this; none: the pod has no worker.

    A worker asks gpupack's scheduler, in a container that is no init container. No container of its
    pod asks for any other GPU.

    Args:
        pod: as the API server shows it.
        wanted: limits of a worker container.
    """
    named = OURS | wanted.keys()
    ordinary = [(each.name, each.resources.limits) for each in pod.spec.containers]
    initial = [each.resources.limits for each in pod.spec.init_containers]
    asked = [(name, found) for name, limit in ordinary if (found := _only(limit, named))]
    asks_us = pod.spec.scheduler_name == names.SCHEDULER_NAME
    if not asks_us or any(_only(limit, named) for limit in initial):
        return ()
    is_as_wanted = all(_same(found, wanted) for _, found in asked)
    return tuple(name for name, _ in asked) if is_as_wanted else ()


def _only(found: Quantities, named: frozenset[str]) -> Quantities:
    return {name: found[name] for name in named & found.keys()}


def _same(asked: Quantities, wanted: Quantities) -> bool:
    """The API server writes 1024Mi as 1Gi."""
    return asked == wanted or _counts(asked) == _counts(wanted)


def _counts(found: Quantities) -> dict[str, int] | None:
    """None where the API server would not have taken them; it is no worker's ask then."""
    try:
        return {name: quantity.count(each) for name, each in found.items()}
    except QuantityInvalid:
        return None
