# SPDX-License-Identifier: Apache-2.0
"""What kube-scheduler and the kubelet count for a pod.

Each resource is counted as kube-scheduler counts it, so that a place does not die in its own
filters later: the sum of the containers and sidecars, or the peak of the init phase if that is
more; in its place, what the pod requests as a whole, if it does; plus overhead
(`PodRequests` of k8s.io/component-helpers/resource). A template that the API server has not yet
filled in is counted as if it had (`defaultPodRequests` of k8s.io/kubernetes).
"""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

import gpupack_core as core
from gpupack_crds import names, quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_kube import objects
from gpupack_scheduling.asks.needs import Needs, is_extended
from gpupack_scheduling.errors import AskInvalid
from gpupack_scheduling.limits import believed

_Quantity = str | int | float
_Measure = Callable[[_Quantity], int]

_OF_NODES: Final[Mapping[str, _Measure]] = {
    "cpu": functools.lru_cache(maxsize=1024)(quantity.milli_cpu),
    "memory": functools.lru_cache(maxsize=1024)(quantity.mebibytes),
}
_whole = functools.lru_cache(maxsize=1024)(quantity.whole)

_HUGE_PAGES: Final = "hugepages-"


def needs(spec: objects.PodSpec, gpu_resources: Collection[str] = ()) -> Needs:
    """What kube-scheduler counts for a pod, but for GPUs, by whatever name they are requested.

    Raises:
        AskInvalid: a quantity cannot be read.
    """

    def measure(name: str) -> _Measure | None:
        return _OF_NODES.get(name) or (_whole if is_extended(name, gpu_resources) else None)

    try:
        counted = _counted(spec, measure)
    except (QuantityInvalid, ArithmeticError) as error:
        raise AskInvalid(f"requests cannot be counted: {error}") from error
    cpu, memory = (believed(counted.pop(name, 0)) for name in _OF_NODES)
    extended = {name: min(amount, core.MAX_AMOUNT) for name, amount in counted.items()}
    return Needs(core.MilliCpu(cpu), core.MiB(memory), core.amounts(extended))


def tickets(spec: objects.PodSpec, observed: Collection[str]) -> dict[str, int]:
    """GPUs, slices and slots for shares that the kubelet counts for a pod, by resource name.

    Raises:
        AskInvalid: a quantity cannot be read.
    """
    asked = (names.GPU, names.GPU_SHARE, *observed, *_slices(spec))
    try:
        counted = _counted(spec, lambda name: quantity.count if name in asked else None)
    except QuantityInvalid as error:
        raise AskInvalid(f"GPUs cannot be counted: {error}") from error
    return {name: believed(counted[name]) for name in asked if counted.get(name)}


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


def _counted(spec: objects.PodSpec, measure: Callable[[str], _Measure | None]) -> dict[str, int]:
    """What the pod needs of each resource that has a measure."""
    needed = _of_containers(spec, measure)
    for name in _of_the_whole(spec):
        whole, asked = measure(name), _asked_as_a_whole(spec, name)
        if whole is not None and asked is not None:
            needed[name] = whole(asked)
    for name, amount in spec.overhead.items():
        if (overhead := measure(name)) is not None:
            needed[name] = needed.get(name, 0) + overhead(amount)
    return needed


def _of_the_whole(spec: objects.PodSpec) -> set[str]:
    """Resources that a pod may request for all its containers together, and does."""
    named = {*spec.resources.requests, *spec.resources.limits}
    return {name for name in named if name in _OF_NODES or name.startswith(_HUGE_PAGES)}


def _asked_as_a_whole(spec: objects.PodSpec, name: str) -> _Quantity | None:
    """What the pod requests for all its containers together; None: each speaks for itself."""
    limit = spec.resources.limits.get(name)
    if limit is not None and any(
        _names(container, name) for container in (*spec.containers, *spec.init_containers)
    ):
        limit = None
    return spec.resources.requests.get(name, limit)


def _of_containers(
    spec: objects.PodSpec, measure: Callable[[str], _Measure | None]
) -> dict[str, int]:
    """In one pass, as there may be thousands of containers, and of names."""
    running, sidecars, peak = Counter[str](), Counter[str](), dict[str, int]()
    for container in spec.containers:
        running.update(_amounts(container, measure))
    for container in spec.init_containers:
        needed = _amounts(container, measure)
        for name, amount in needed.items():
            peak[name] = max(peak.get(name, 0), sidecars[name] + amount)
        if _is_sidecar(container):
            running.update(needed)
            sidecars.update(needed)
    return {name: max(running[name], peak.get(name, 0)) for name in {**running, **peak}}


def _amounts(
    container: objects.Container, measure: Callable[[str], _Measure | None]
) -> dict[str, int]:
    resources = container.resources
    asked = {**resources.limits, **resources.requests}
    found = ((name, measure(name), amount) for name, amount in asked.items())
    return {name: read(amount) for name, read, amount in found if read is not None}


def _names(container: objects.Container, name: str) -> bool:
    return name in container.resources.requests or name in container.resources.limits
