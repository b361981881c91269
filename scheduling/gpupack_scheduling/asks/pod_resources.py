# SPDX-License-Identifier: Apache-2.0
"""What kube-scheduler and the kubelet count for a pod.

Each resource is counted as kube-scheduler counts it, so that a place does not die in its own
filters later: the sum of the containers and sidecars, or the peak of the init phase if that is
more; in its place, what the pod requests as a whole, if it does; plus overhead
(`PodRequests` of k8s.io/component-helpers/resource). A template that the API server has not yet
filled in is counted as if it had (`defaultPodRequests` of k8s.io/kubernetes).

Resources of a pod that runs can be resized. Until its kubelet has done so it is counted by the most
of what the spec wants, what the kubelet has admitted and what its containers run with; by the last
two, where the kubelet says that it cannot (`PodResizePending`, reason `Infeasible`). So a wish that
is never granted takes nothing from others, and what is still to be given up is not given away.
"""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import gpupack_core as core
from gpupack_crds import names, quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_kube import objects
from gpupack_scheduling.asks.needs import Needs, is_extended
from gpupack_scheduling.asks.requests import Quantities, Quantity, Requests
from gpupack_scheduling.errors import AskInvalid
from gpupack_scheduling.limits import believed

Measure = Callable[[Quantity], int]
Measures = Callable[[str], Measure | None]
"""By resource name; None: it is not counted."""

_OF_NODES: Final[Mapping[str, Measure]] = {
    "cpu": functools.lru_cache(maxsize=1024)(quantity.milli_cpu),
    "memory": functools.lru_cache(maxsize=1024)(quantity.mebibytes),
}
_whole = functools.lru_cache(maxsize=1024)(quantity.whole)


def needs(spec: objects.PodSpec, gpu_resources: Collection[str] = ()) -> Needs:
    """What kube-scheduler counts for a pod, but for GPUs, by whatever name they are requested.

    Raises:
        AskInvalid: a quantity cannot be read.
    """
    return _needs(Requests(spec), gpu_resources)


def held(pod: objects.Pod, gpu_resources: Collection[str] = ()) -> Needs:
    """The same of a pod that has a node, where its resources may be being resized.

    Raises:
        AskInvalid: a quantity cannot be read.
    """
    return _needs(Requests(pod.spec, pod.status), gpu_resources)


def _needs(asked: Requests, gpu_resources: Collection[str]) -> Needs:
    def measure(name: str) -> Measure | None:
        return _OF_NODES.get(name) or (_whole if is_extended(name, gpu_resources) else None)

    try:
        counted = _counted(asked, measure)
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
    asked = dict.fromkeys((names.GPU, names.GPU_SHARE, *observed, *_slices(spec)), quantity.count)
    try:
        counted = _counted(Requests(spec), asked.get)
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


def plain_init(spec: objects.PodSpec) -> list[objects.Container]:
    """List the init containers that end before the containers start."""
    return [c for c in spec.init_containers if not _is_sidecar(c)]


def _is_sidecar(container: objects.Container) -> bool:
    return container.restart_policy == "Always"


def _counted(asked: Requests, measure: Measures) -> dict[str, int]:
    """What the pod needs of each resource that has a measure."""
    needed = _of_containers(asked, measure)
    overhead = _most((asked.spec.overhead,), measure)
    for name, amount in _of_the_whole(asked, measure, overhead).items():
        needed[name] = amount
    for name, amount in overhead.items():
        needed[name] = needed.get(name, 0) + amount
    return needed


def _of_the_whole(
    asked: Requests, measure: Measures, overhead: Mapping[str, int]
) -> dict[str, int]:
    wanted = _most((asked.of_the_whole(),), measure)
    told = _most(asked.told_of_the_whole(), measure)
    found: dict[str, int] = {}
    for name, amount in wanted.items():
        has = told[name] - overhead.get(name, 0) if name in told else None
        wish = amount if has is None or asked.counts_wish else 0
        found[name] = max(wish, has or 0)
    return found


def _of_containers(asked: Requests, measure: Measures) -> dict[str, int]:
    """In one pass, as there may be thousands of containers, and of names."""
    running, sidecars, peak = Counter[str](), Counter[str](), dict[str, int]()
    for container in asked.spec.containers:
        running.update(_most(asked.of(container), measure))
    for container in asked.spec.init_containers:
        needed = _most(asked.of(container), measure)
        for name, amount in needed.items():
            peak[name] = max(peak.get(name, 0), sidecars[name] + amount)
        if _is_sidecar(container):
            running.update(needed)
            sidecars.update(needed)
    return {name: max(running[name], peak.get(name, 0)) for name in {**running, **peak}}


def _most(lists: Iterable[Quantities], measure: Measures) -> dict[str, int]:
    """The most of each resource that any of these names."""
    found: dict[str, int] = {}
    for each in lists:
        for name, amount in each.items():
            if (read := measure(name)) is not None:
                found[name] = max(found.get(name, 0), read(amount))
    return found
