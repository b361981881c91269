# SPDX-License-Identifier: Apache-2.0
"""Running jobs in the queue's terms, from the ledger's claims.

Where another device plugin hands out the GPUs, or another scheduler bound the pod, no devices are
known. A quota counts them all the same: as if the holder had GPUs of its node that no other holder
is assumed to have.
"""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from gpupack_crds import names
from gpupack_placement import (
    WHOLE_GPU,
    Cluster,
    Device,
    DeviceUuid,
    Gang,
    Grant,
    Placement,
    Request,
    Role,
    Share,
)
from gpupack_queue import NO_USER, Job, JobId, Tenant
from gpupack_scheduler.ledger.claims import Allocation, DeviceTokens, PodClaim
from gpupack_scheduler.ledger.jobs import ShownJob
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.terminating import TerminatingHolder
from gpupack_scheduler.ledger.workers import AttemptKey, WorkerKey
from gpupack_scheduler.queueing.pending.request import (
    POD_NAME,
    extra_worker,
    group_id,
    group_name,
    job_id,
    reservation_id,
)
from gpupack_scheduler.requests import gang_request, sharing
from gpupack_scheduler.requests.pod_groups import GangKey


class AssumedPlaces:
    """Assumed GPUs of holders of which only the number of GPUs is known."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._of: dict[JobId, set[DeviceUuid]] = {}
        self._taken: set[DeviceUuid] = set()

    def places(self, holder: JobId, allocations: Iterable[Allocation]) -> tuple[Placement, ...]:
        """Return what a holder holds, with devices if there are enough."""
        self.forget(holder)
        return tuple(self._place(holder, each) for each in allocations)

    def forget(self, holder: JobId) -> None:
        """Forget a holder that holds nothing any more."""
        self._taken -= self._of.pop(holder, set())

    def _place(self, holder: JobId, allocation: Allocation) -> Placement:
        node = self._cluster.node(allocation.node)
        if node is None or not allocation.tokens:
            return allocation.placement
        known = {grant.uuid for grant in allocation.placement.devices}
        taken = self._taken | known
        spare = [device for device in node.devices if device.uuid not in taken]
        grants = tuple(
            Grant(device.uuid, WHOLE_GPU, device.memory)
            for resource in node.resources
            for device in _first(spare, resource, allocation.tokens)
        )
        if not grants:
            return allocation.placement
        self._keep(holder, (grant.uuid for grant in grants))
        devices = (*allocation.placement.devices, *grants)
        return dataclasses.replace(allocation.placement, devices=devices)

    def _keep(self, holder: JobId, uuids: Iterator[DeviceUuid]) -> None:
        kept = set(uuids)
        self._of.setdefault(holder, set()).update(kept)
        self._taken |= kept


def _first(devices: Iterable[Device], resource: str, tickets: DeviceTokens) -> Iterator[Device]:
    """Return as many devices of a resource as there are tokens for it."""
    serving = (device for device in devices if device.resource == resource)
    return itertools.islice(serving, tickets.get(resource or names.GPU, 0))


def gang_job(
    attempt: AttemptKey,
    places: tuple[Placement, ...],
    shown: ShownJob | None,
    estimate: float | None,
    *,
    observed: Collection[str] = (),
) -> Job:
    """Return the job of an attempt that was found running and was not admitted by this process.

    It may move or grow if its spec says so and its rules about nodes can be read.
    """
    job = (shown.movable or shown.growing) if shown else None
    asked = gang_request.of_placed(job, observed) if job else None
    is_read = asked is not None and asked.workers == len(places)
    created = shown.created_at if shown else None
    has_roles = shown is not None and shown.has_roles
    found = asked if asked is not None and is_read else _gang(places, has_roles=has_roles)
    return Job(
        id=job_id(attempt),
        gang=found,
        submitted=created.timestamp() if created else 0.0,
        tenant=Tenant(attempt.namespace),
        priority=shown.priority if shown else 0,
        duration=shown.seconds_left if shown else None,
        estimate=estimate,
        name=attempt.job,
        movable=is_read and shown is not None and shown.movable is not None,
        extra_workers=shown.extra if shown and is_read and not found.is_spread else 0,
        held_since=shown.held_since.timestamp() if shown and shown.held_since else None,
        grace_seconds=shown.grace if shown else 0.0,
        user=shown.user if shown else NO_USER,
        model_fallback_seconds=job.spec.model_fallback_seconds if job and is_read else None,
        reservation=reservation_id(attempt.namespace, shown.reservation) if shown else None,
    )


def pod_job(
    job: JobId, pod: PodClaim | TerminatingHolder, place: Placement, *, evicts: bool
) -> Job:
    """Return the job of a standalone or lingering pod; a lingering one cannot be preempted."""
    found = Job(
        id=job,
        gang=_gang((place,)),
        tenant=Tenant(pod.namespace),
        name=f"{POD_NAME}{pod.name}",
        preemptible=False,
    )
    if isinstance(pod, TerminatingHolder):
        return found
    return dataclasses.replace(
        found,
        submitted=pod.created,
        priority=pod.priority,
        duration=pod.duration,
        grace_seconds=pod.grace,
        user=pod.user,
        reservation=reservation_id(pod.namespace, pod.reservation),
        preemptible=evicts,
    )


def members_job(gang: GangKey, members: Collection[PodClaim], *, evicts: bool) -> Job:
    """Return the job of a running gang of a pod group: its members are preempted together."""
    durations = [each.duration for each in members if each.duration is not None]
    reservations = {each.reservation for each in members}
    users = {each.user for each in members}
    reservation = reservations.pop() if len(reservations) == 1 else None
    places = tuple(each.placement for each in ordered_members(members))
    return Job(
        id=group_id(gang),
        gang=_gang(places, has_roles=True),
        submitted=min(each.created for each in members),
        tenant=Tenant(gang.group.namespace),
        priority=min(each.priority for each in members),
        duration=max(durations) if len(durations) == len(members) else None,
        name=group_name(gang.group.name),
        grace_seconds=max(each.grace for each in members),
        user=users.pop() if len(users) == 1 else NO_USER,
        reservation=reservation_id(gang.group.namespace, reservation),
        preemptible=evicts,
    )


def ordered_members(members: Collection[PodClaim]) -> list[PodClaim]:
    """Return members by worker index: those with equal places together."""
    by_size = defaultdict[Request, list[PodClaim]](list)
    for each in members:
        by_size[_shown_request(each.placement)].append(each)
    return [each for of_size in by_size.values() for each in of_size]


def has_ended(ledger: Ledger, attempt: str) -> bool:
    """Tell whether a status shows the end of an attempt or extra worker; its pods may still exist.

    `attempt` is UID/NUMBER, or UID/NUMBER+WORKER for an extra worker.
    """
    extra = extra_worker(attempt)
    uid, _, number = (extra[0] if extra else attempt).partition("/")
    shown = ledger.jobs.shown(uid)
    if extra is not None and shown is not None:
        worker = WorkerKey(shown.attempt, shown.least + extra[1] - 1)
        is_placed = worker in ledger.claims.workers
        return not is_placed or str(shown.attempt.number) != number
    attempts = shown.attempts if shown else ()
    return any(str(each.number) == number and each.finished_at for each in attempts)


def _asked(held: Grant) -> Share:
    isolation, _ = sharing.held_as(held.group)
    return Share(held.milli, held.memory, held.group, limited=isolation == "limited")


def _gang(places: tuple[Placement, ...], *, has_roles: bool = False) -> Gang:
    """Return the request of a gang as far as its places show it.

    `has_roles`: workers are of several kinds; each run of equal places is taken for a role.
    """
    if not has_roles:
        return Gang.of(len(places), _shown_request(places[0]))
    runs = [(each, len(list(run))) for each, run in itertools.groupby(places, _shown_request)]
    return Gang(
        tuple(
            Role(f"role-{number}", workers, request)
            for number, (request, workers) in enumerate(runs)
        )
    )


def _shown_request(place: Placement) -> Request:
    """Return the request of a worker as far as its place shows it."""
    share = next((grant for grant in place.devices if grant.milli < WHOLE_GPU), None)
    size = Request(share=_asked(share)) if share else Request(gpus=len(place.devices))
    return dataclasses.replace(size, cpu=place.cpu, memory=place.memory, extended=place.extended)
