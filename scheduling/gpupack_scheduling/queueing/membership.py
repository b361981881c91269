# SPDX-License-Identifier: Apache-2.0
"""Which pods that say to be workers of an attempt hold no more than it was given.

Their author can say it of any pod of his at any time, of one that is bound, too. Whatever holds
other GPUs than the worker that it names has to count beside it, or a quota would count it as none.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import gpupack_core as core
from gpupack_scheduling.ledger.claims import Allocation, PodClaim, together
from gpupack_scheduling.ledger.workers import WorkerKey

Held = tuple[Allocation, ...]


@dataclasses.dataclass(slots=True)
class Part:
    """What the queue knows as one job.

    Attributes:
        index: of an extra worker; None: the gang, which starts and ends together.
        places: of its workers.
        pods: that say to be its workers.
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
    """An attempt's gang, then its extra workers: those who hold something, and who did.

    Args:
        least: how many workers the gang has; those with larger indices are extra ones.
        places: of all workers.
        pods: that say to be its workers.
        known: indices of the extra workers that held something when somebody last looked.
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
    """What an attempt holds, by the index of its workers; and by UID the pods that are none of it.

    A worker whose place is no longer claimed holds what its pod does until that is gone.

    Args:
        places: of its workers.
        pods: that say to be its workers.
        before: what it held when somebody last looked.
        place_of: by the first worker of a pod, what its workers hold together; absent: each worker
            has a pod to itself.
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


def _by_node(held: Held) -> dict[core.NodeName, list[Allocation]]:
    """A gang has a thousand workers, but few of them on one node."""
    found = defaultdict[core.NodeName, list[Allocation]](list)
    for each in held:
        found[each.node].append(each)
    return found


def _covering(pod: Allocation, among: Sequence[Allocation]) -> list[Allocation]:
    """Choose the place, or the places of several workers, beyond which the pod holds no GPU."""
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
    """Whether the pod holds no GPU beyond the place."""
    return (
        pod.node == place.node
        and set(pod.placement.devices) <= set(place.placement.devices)
        and all(number <= place.tickets.get(name, 0) for name, number in pod.tickets.items())
    )
