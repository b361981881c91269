# SPDX-License-Identifier: Apache-2.0
"""What kube-scheduler and the kubelet count for a pod.

CPU and memory are counted as kube-scheduler counts them, so that a place does not die in its own
filters later: the sum of the containers and sidecars, or the peak of the init phase if that is
more; in its place, what the pod requests as a whole, if it does; plus overhead
(`PodRequests` of k8s.io/component-helpers/resource). A template that the API server has not yet
filled in is counted as if it had (`defaultPodRequests` of k8s.io/kubernetes).
"""

import functools
from collections.abc import Callable, Collection, Mapping

import gpupack_core as core
from gpupack_crds import names, quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_kube import objects
from gpupack_scheduling.errors import AskInvalid
from gpupack_scheduling.limits import believed

_milli_cpu = functools.lru_cache(maxsize=1024)(quantity.milli_cpu)
_mebibytes = functools.lru_cache(maxsize=1024)(quantity.mebibytes)

_MEASURES: Mapping[str, Callable[[str | int | float], int]] = {
    "cpu": _milli_cpu,
    "memory": _mebibytes,
}
"""Whatever is not named here is counted in whole pieces."""


def needs(spec: objects.PodSpec) -> tuple[core.MilliCpu, core.MiB]:
    """CPU and memory that kube-scheduler counts for a pod.

    Raises:
        AskInvalid: a quantity cannot be read.
    """
    try:
        cpu, memory = _counted(spec, "cpu"), _counted(spec, "memory")
    except (QuantityInvalid, ArithmeticError) as error:
        raise AskInvalid(f"requests cannot be counted: {error}") from error
    return core.MilliCpu(believed(cpu)), core.MiB(believed(memory))


def tickets(spec: objects.PodSpec, observed: Collection[str]) -> dict[str, int]:
    """GPUs, slices and slots for shares that the kubelet counts for a pod, by resource name.

    Raises:
        AskInvalid: a quantity cannot be read.
    """
    try:
        asked = (names.GPU, names.GPU_SHARE, *observed, *_slices(spec))
        counted = {name: believed(_counted(spec, name)) for name in asked}
    except QuantityInvalid as error:
        raise AskInvalid(f"GPUs cannot be counted: {error}") from error
    return {name: number for name, number in counted.items() if number}


def _slices(spec: objects.PodSpec) -> set[str]:
    """The resources of MIG slices that any container names."""
    containers = (*spec.containers, *spec.init_containers)
    return {
        name
        for container in containers
        for name in container.resources.limits
        if name.startswith(names.MIG_PREFIX)
    }


def long_running(spec: objects.PodSpec) -> list[objects.Container]:
    """Containers and sidecars."""
    return [*spec.containers, *(c for c in spec.init_containers if _is_sidecar(c))]


def _is_sidecar(container: objects.Container) -> bool:
    return container.restart_policy == "Always"


def _counted(spec: objects.PodSpec, name: str) -> int:
    """What the pod needs of one resource."""
    measure = _MEASURES.get(name, quantity.count)
    as_a_whole = _asked_as_a_whole(spec, name)
    needed = _of_containers(spec, name) if as_a_whole is None else measure(as_a_whole)
    return needed + measure(spec.overhead.get(name, 0))


def _asked_as_a_whole(spec: objects.PodSpec, name: str) -> str | float | None:
    """What the pod requests for all its containers together; None: each speaks for itself."""
    if name not in _MEASURES:
        return None
    limit = spec.resources.limits.get(name)
    if limit is not None and any(
        _names(container, name) for container in (*spec.containers, *spec.init_containers)
    ):
        limit = None
    return spec.resources.requests.get(name, limit)


def _of_containers(spec: objects.PodSpec, name: str) -> int:
    """In one pass, as there may be thousands of containers."""
    measure = _MEASURES.get(name, quantity.count)
    peak = sum(measure(_asked(container, name)) for container in long_running(spec))
    sidecars = 0
    for container in spec.init_containers:
        amount = measure(_asked(container, name))
        peak = max(peak, sidecars + amount)
        if _is_sidecar(container):
            sidecars += amount
    return peak


def _names(container: objects.Container, name: str) -> bool:
    return name in container.resources.requests or name in container.resources.limits


def _asked(container: objects.Container, name: str) -> str | int | float:
    resources = container.resources
    return resources.requests.get(name, resources.limits.get(name, 0))
