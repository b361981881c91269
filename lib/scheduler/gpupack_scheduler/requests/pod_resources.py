# SPDX-License-Identifier: Apache-2.0
"""The resources that kube-scheduler and the kubelet count for a pod.

Each resource is counted as kube-scheduler counts it, so that its own filters do not reject a place
later. The amount is the sum of the containers and sidecars, or the peak of the init phase if that
is larger. The pod's own request, if it has one, replaces this amount. The overhead is added
(`PodRequests` of k8s.io/component-helpers/resource). A template without the API server's defaults
is counted as if it had them (`defaultPodRequests` of k8s.io/kubernetes).

The resources of a running pod can be resized. Until the kubelet has done so, the largest of three
amounts counts: the one in the spec, the one that the kubelet has admitted, and the one that the
containers run with. Where the kubelet reports that the resize is impossible (`PodResizePending`,
reason `Infeasible`), the last two count. So a resize that is never granted takes nothing from other
pods, and resources that are yet to be released are not given away.
"""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from gpupack_crds import names, quantity
from gpupack_crds.errors import QuantityInvalid
from gpupack_kubeclient import objects
from gpupack_placement import MAX_AMOUNT, MiB, MilliCpu, amounts
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.limits import believed
from gpupack_scheduler.requests.container_requests import ContainerRequests, Quantities, Quantity
from gpupack_scheduler.requests.needs import Needs, is_extended

Measure = Callable[[Quantity], int]
Measures = Callable[[str], Measure | None]
"""A measure by resource name; None: the resource is not counted."""

_OF_NODES: Final[Mapping[str, Measure]] = {
    "cpu": functools.lru_cache(maxsize=1024)(quantity.milli_cpu),
    "memory": functools.lru_cache(maxsize=1024)(quantity.mebibytes),
}
_whole = functools.lru_cache(maxsize=1024)(quantity.whole)


def needs(spec: objects.PodSpec, gpu_resources: Collection[str] = ()) -> Needs:
    """Return what kube-scheduler counts for a pod, without GPUs of any name.

    Raises:
        RequestInvalid: a quantity cannot be read.
    """
    return _needs(ContainerRequests(spec), gpu_resources)


def held(pod: objects.Pod, gpu_resources: Collection[str] = ()) -> Needs:
    """Return what counts for a pod on a node, whose resources may be resized at the moment.

    Raises:
        RequestInvalid: a quantity cannot be read.
    """
    return _needs(ContainerRequests(pod.spec, pod.status), gpu_resources)


def _needs(asked: ContainerRequests, gpu_resources: Collection[str]) -> Needs:
    def measure(name: str) -> Measure | None:
        return _OF_NODES.get(name) or (_whole if is_extended(name, gpu_resources) else None)

    try:
        counted = _counted(asked, measure)
    except (QuantityInvalid, ArithmeticError) as error:
        raise RequestInvalid(f"requests cannot be counted: {error}") from error
    cpu, memory = (believed(counted.pop(name, 0)) for name in _OF_NODES)
    extended = {name: min(amount, MAX_AMOUNT) for name, amount in counted.items()}
    return Needs(MilliCpu(cpu), MiB(memory), amounts(extended))


def device_tokens(spec: objects.PodSpec, observed: Collection[str]) -> dict[str, int]:
    """Return the GPUs, slices and share slots that the kubelet counts for a pod, by resource name.

    Raises:
        RequestInvalid: a quantity cannot be read.
    """
    asked = dict.fromkeys((names.GPU, names.GPU_SHARE, *observed, *_slices(spec)), quantity.count)
    try:
        counted = _counted(ContainerRequests(spec), asked.get)
    except QuantityInvalid as error:
        raise RequestInvalid(f"GPUs cannot be counted: {error}") from error
    return {name: believed(counted[name]) for name in asked if counted.get(name)}


def _slices(spec: objects.PodSpec) -> set[str]:
    """Return the resources of MIG slices that any container names."""
    containers = (*spec.containers, *spec.init_containers)
    return {
        name
        for container in containers
        for name in container.resources.limits
        if name.startswith(names.MIG_PREFIX)
    }


def long_running(spec: objects.PodSpec) -> list[objects.Container]:
    """List the containers and sidecars."""
    return [*spec.containers, *(c for c in spec.init_containers if _is_sidecar(c))]


def plain_init(spec: objects.PodSpec) -> list[objects.Container]:
    """List the init containers that end before the containers start."""
    return [c for c in spec.init_containers if not _is_sidecar(c)]


def _is_sidecar(container: objects.Container) -> bool:
    return container.restart_policy == "Always"


def _counted(asked: ContainerRequests, measure: Measures) -> dict[str, int]:
    """Return the amount of each resource that has a measure."""
    needed = _of_containers(asked, measure)
    overhead = _maximum((asked.spec.overhead,), measure)
    for name, amount in _pod_level(asked, measure, overhead).items():
        needed[name] = amount
    for name, amount in overhead.items():
        needed[name] = needed.get(name, 0) + amount
    return needed


def _pod_level(
    asked: ContainerRequests, measure: Measures, overhead: Mapping[str, int]
) -> dict[str, int]:
    wanted = _maximum((asked.pod_level(),), measure)
    reported = _maximum(asked.reported_pod_level(), measure)
    found: dict[str, int] = {}
    for name, amount in wanted.items():
        has = reported[name] - overhead.get(name, 0) if name in reported else None
        wish = amount if has is None or asked.counts_spec else 0
        found[name] = max(wish, has or 0)
    return found


def _of_containers(asked: ContainerRequests, measure: Measures) -> dict[str, int]:
    """Return the amounts of the containers, in one pass: containers and names may be thousands."""
    running, sidecars, peak = Counter[str](), Counter[str](), dict[str, int]()
    for container in asked.spec.containers:
        running.update(_maximum(asked.of(container), measure))
    for container in asked.spec.init_containers:
        needed = _maximum(asked.of(container), measure)
        for name, amount in needed.items():
            peak[name] = max(peak.get(name, 0), sidecars[name] + amount)
        if _is_sidecar(container):
            running.update(needed)
            sidecars.update(needed)
    return {name: max(running[name], peak.get(name, 0)) for name in {**running, **peak}}


def _maximum(lists: Iterable[Quantities], measure: Measures) -> dict[str, int]:
    """Return the largest amount of each resource in any of these lists."""
    found: dict[str, int] = {}
    for each in lists:
        for name, amount in each.items():
            if (read := measure(name)) is not None:
                found[name] = max(found.get(name, 0), read(amount))
    return found
