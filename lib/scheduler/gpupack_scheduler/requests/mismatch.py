# SPDX-License-Identifier: Apache-2.0
"""The place of a worker's pod, and the comparison of the pod's GPU request with it.

Only its author says that a pod is a worker. ResourceQuota counts the pod's request, and the
container gets the devices of the place, so both must be equal. CPU and memory may differ:
kube-scheduler and kubelet enforce the pod's own request.
"""

from gpupack_crds import names
from gpupack_placement import MiB, MilliGpu, Request, memory_text
from gpupack_scheduler.errors import BindRefused, RequestMismatch
from gpupack_scheduler.ledger.claim_table import ClaimTable
from gpupack_scheduler.ledger.claims import Allocation
from gpupack_scheduler.ledger.workers import WorkerKey
from gpupack_scheduler.requests import sharing
from gpupack_scheduler.requests.gpu_request import MILLI_PER_PERCENT

SLICE = "MIG-"
"""Prefix of NVIDIA's UUIDs of MIG slices, and of gpupack's UUIDs of simulated ones."""


def worker_place(table: ClaimTable, worker: WorkerKey, request: Request) -> Allocation:
    """Return the place of a worker's pod, for all workers that run in it.

    Raises:
        BindRefused: the worker has no place of its own, or another pod holds it, or it cannot be
            used now.
        RequestMismatch: the pod requests other GPUs than the place has.
    """
    claim = table.workers.get(worker)
    if claim is None:
        raise BindRefused(f"{worker.attempt} has no place for worker {worker.index}")
    place, title = table.place_of(worker), table.title(worker)
    if place is None:
        raise BindRefused(f"worker {worker.index} runs in the pod of worker {claim.pod.index}")
    if differs := mismatch(request, place):
        raise RequestMismatch(differs)
    if others := table.pods_of(worker):
        raise BindRefused(f"{title} is held by pod {others[0].name}")
    if obstacle := table.obstacle(place):
        raise BindRefused(f"{title} cannot be used: {obstacle}")
    return place


def mismatch(request: Request, allocation: Allocation) -> str:
    """Return why a pod with this request cannot have the place; empty if it can."""
    asked, held = _asked(request), _held(allocation)
    if asked == held:
        return ""
    return f"the pod asks for {asked}, but its worker's place is {held}; ask for the same GPUs"


def _asked(request: Request) -> str:
    if request.share is not None:
        return _share(request.share.milli, request.share.memory, request.share.group)
    if request.slices is not None and request.resource:
        return _whole(request.slices.number, request.resource)
    if request.slices is not None:
        return _slices(request.slices.number)
    return _whole(request.gpus or 0, request.resource or names.GPU)


def _held(allocation: Allocation) -> str:
    grants = allocation.placement.devices
    parts = [_share(grant.milli, grant.memory, grant.group) for grant in grants if grant.shares]
    cut = sum(grant.uuid.startswith(SLICE) for grant in grants)
    parts += [_slices(cut)] if cut else []
    whole = sum(not grant.shares for grant in grants) - cut
    counts = ({names.GPU: whole} if whole else {}) | dict(allocation.tokens)
    return " and ".join([*parts, *(_whole(number, name) for name, number in counts.items())])


def _share(milli: MilliGpu, memory: MiB, group: str) -> str:
    isolation, exclusive_to_namespace = sharing.held_as(group)
    kind = "" if isolation == "cooperative" else f"{isolation} "
    alone = (
        f" next to those of namespace {exclusive_to_namespace} alone"
        if exclusive_to_namespace
        else ""
    )
    return f"a {kind}share of {milli // MILLI_PER_PERCENT}% and {memory_text(memory)}{alone}"


def _slices(number: int) -> str:
    """Describe a number of slices without their profile, which is not known for a place.

    The agent gives the pod slices of the requested profile only.
    """
    return f"{number} MIG slice{'' if number == 1 else 's'}"


def _whole(number: int, name: str) -> str:
    return f"{number} {name}"
