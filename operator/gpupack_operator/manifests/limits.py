# SPDX-License-Identifier: Apache-2.0
"""GPU limits of a worker's container, and the check that a pod requests exactly these.

ResourceQuota counts what a pod requests, so a pod that requests less does not prove that the
namespace may have a worker. CPU and memory are not compared: admission may set them, and a resize
may change them.
"""

from collections.abc import Mapping

from gpupack_crds import names, quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_kubeclient.objects import Pod

Quantities = Mapping[str, str | int | float]

GPUPACK_RESOURCES = frozenset({names.GPU, names.GPU_SHARE, names.GPU_PERCENT, names.GPU_MEMORY})


def limits(spec: GpuJobSpec) -> dict[str, str]:
    """Return the limits of the worker container: whole GPUs, MIG slices, or a share of a GPU.

    A share's memory is in whole MiB, as in the ledger: Kubernetes accepts only integers for such a
    resource, and 0.1Gi is not a whole number of bytes.
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


def gpu_containers(pod: Pod, expected: Quantities) -> tuple[str, ...]:
    """Return the names of the containers that each request this; empty: the pod has no worker.

    A worker names gpupack's scheduler and requests its GPUs in a container that is no init
    container. No container of its pod requests any other GPU.

    Args:
        pod: the pod as the API server shows it.
        expected: limits of a worker container.
    """
    named = GPUPACK_RESOURCES | expected.keys()
    ordinary = [(each.name, each.resources.limits) for each in pod.spec.containers]
    initial = [each.resources.limits for each in pod.spec.init_containers]
    requested = [(name, found) for name, limit in ordinary if (found := _only(limit, named))]
    asks_us = pod.spec.scheduler_name == names.SCHEDULER_NAME
    if not asks_us or any(_only(limit, named) for limit in initial):
        return ()
    is_as_expected = all(_same(found, expected) for _, found in requested)
    return tuple(name for name, _ in requested) if is_as_expected else ()


def _only(found: Quantities, named: frozenset[str]) -> Quantities:
    return {name: found[name] for name in named & found.keys()}


def _same(requested: Quantities, expected: Quantities) -> bool:
    """Compare quantities by value: the API server writes 1024Mi as 1Gi."""
    return requested == expected or _counts(requested) == _counts(expected)


def _counts(found: Quantities) -> dict[str, int] | None:
    """Return the counts, or None for quantities that the API server would refuse from a worker."""
    try:
        return {name: quantity.count(each) for name, each in found.items()}
    except QuantityInvalid:
        return None
