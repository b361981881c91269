# SPDX-License-Identifier: Apache-2.0
"""Pods labelled as workers of an attempt, and whether they hold only its places.

A pod's author can write these labels at any time, even for a bound pod. A pod that holds other GPUs
than its worker must count separately, or a quota would not count it.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpupack_placement import NodeName
from gpupack_scheduler.ledger.claims import Allocation, PodClaim, together
from gpupack_scheduler.ledger.workers import WorkerKey

Held = tuple[Allocation, ...]


@dataclasses.dataclass(slots=True)
class Part:
    """A part of an attempt that the queue treats as one job.

    Attributes:
        index: index of an extra worker; None: the gang, which starts and ends together.
        places: places of its workers.
        pods: pods labelled as its workers.
    """

    index: int | None
    places: dict[WorkerKey, Allocation] = dataclasses.field(default_factory=dict)
    pods: list[PodClaim] = dataclasses.field(default_factory=list)


def parts(
    least: int,
    places: Mapping[WorkerKey, Allocation],
    pods: Iterable[PodClaim],
    known: Iterable[int | None],
) -> list[Part]:
    """Return an attempt's gang, then the extra workers that hold or held something.

    Args:
        least: number of workers of the gang; larger indices are extra workers.
        places: places of all workers.
        pods: pods labelled as its workers.
        known: indices of the extra workers that held something at the last look.
    """
    found: dict[int | None, Part] = {None: Part(None)}
    for index in known:
        found.setdefault(index, Part(index))

    def part(worker: WorkerKey) -> Part:
        index = worker.index if worker.index >= least else None
        return found.setdefault(index, Part(index))

    for worker, allocation in places.items():
        part(worker).places[worker] = allocation
    for pod in pods:
        if pod.worker is not None:
            part(pod.worker).pods.append(pod)
    return list(found.values())


def divide(
    places: Mapping[WorkerKey, Allocation],
    pods: Iterable[PodClaim],
    before: Held,
    *,
    place_of: Callable[[WorkerKey], Allocation | None] | None = None,
) -> tuple[Held, dict[str, PodClaim]]:
    """Return what an attempt holds, by worker index, and by UID the pods that are no part of it.

    A worker whose place is no longer claimed holds what its pod holds until the pod is gone.

    Args:
        places: places of its workers.
        pods: pods labelled as its workers.
        before: what it held at the last look.
        place_of: function from the first worker of a pod to what its workers hold together; absent:
            each worker has a pod to itself.
    """
    place_of = place_of or places.get
    held, others = dict(places), dict[str, PodClaim]()
    ended, served = _by_node(before), set[WorkerKey]()
    for lasting in places.values():
        if lasting in ended[lasting.node]:
            ended[lasting.node].remove(lasting)
    for pod in sorted(pods, key=lambda pod: pod.uid):
        if pod.worker is None:
            continue
        is_placed = pod.worker in places
        place = place_of(pod.worker) if is_placed else None
        among = [place] if place else [] if is_placed else ended[pod.allocation.node]
        found = _covering(pod.allocation, among)
        if not found or pod.worker in served:
            others[pod.uid] = pod
            continue
        served.add(pod.worker)
        if not is_placed:
            for each in found:
                among.remove(each)
            held[pod.worker] = pod.allocation
    return tuple(held[worker] for worker in sorted(held, key=lambda of: of.index)), others


def _by_node(held: Held) -> dict[NodeName, list[Allocation]]:
    """Group places by node: a gang has a thousand workers, but few of them on one node."""
    found = defaultdict[NodeName, list[Allocation]](list)
    for each in held:
        found[each.node].append(each)
    return found


def _covering(pod: Allocation, among: Sequence[Allocation]) -> list[Allocation]:
    """Choose the place, or the places of several workers, that cover all GPUs of the pod."""
    if alone := next((each for each in among if _is_within(pod, each)), None):
        return [alone]
    devices, chosen = set(pod.placement.devices), list[Allocation]()
    for each in among:
        if devices.issuperset(each.placement.devices):
            chosen.append(each)
            if _is_within(pod, together(chosen)):
                return chosen
    return []


def _is_within(pod: Allocation, place: Allocation) -> bool:
    """Tell whether the pod holds no GPU beyond the place."""
    return (
        pod.node == place.node
        and set(pod.placement.devices) <= set(place.placement.devices)
        and all(number <= place.tokens.get(name, 0) for name, number in pod.tokens.items())
    )
