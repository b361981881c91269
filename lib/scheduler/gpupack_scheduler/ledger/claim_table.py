# SPDX-License-Identifier: Apache-2.0
"""Claims, and the cluster's arrays kept equal to them.

Invariant: placement's cluster holds exactly the pods' claims, those workers' claims that no pod's
claim covers, the devices of lingering pods that their own claim does not cover, and what `tickets`
sets aside. Only these two modules take from and give back to the cluster.

Workers have claims of their own, planned and written, whether or not they share a pod: so nothing
is freed or held twice when a plan is written. A pod claims the place of all its workers together.

A pod covers its workers only if it holds the same devices on the same node. If the API ever shows
otherwise, both stay held: one device too many is held, and no device is given out twice.

A lingering pod is no longer in the API, and its processes still hold GPUs, as its node's agent
reports. The agent may report it before the watch shows that the pod is gone. While the pod's claim
exists, that claim counts; as soon as it ends, the lingering pod's devices do.
"""

import dataclasses
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from gpupack_crds import indices
from gpupack_placement import (
    WHOLE_GPU,
    Cluster,
    Device,
    DeviceUuid,
    Grant,
    Health,
    Holder,
    Node,
    NodeName,
    Placement,
)
from gpupack_scheduler.inventory import ACCEPTANCE
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.changes import Changes
from gpupack_scheduler.ledger.claims import Allocation, PodClaim, State, WorkerClaim
from gpupack_scheduler.ledger.terminating import TerminatingHolder
from gpupack_scheduler.ledger.token_reservations import TokenReservations
from gpupack_scheduler.ledger.workers import (
    AttemptKey,
    WorkerKey,
    is_terminating,
    pod_holder,
    terminating_holder,
)
from gpupack_scheduler.requests.pod_groups import GangKey, GroupKey

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

_NO_WORK: Final = {Health.FAILED: "failed"}
"""Why a GPU of this health gets no work."""

_NO_NEW_WORK: Final = {
    **_NO_WORK,
    Health.CORDONED: "gets no new work",
    Health.MAINTENANCE: "is in maintenance",
}


class ClaimTable:
    """All claims by worker and by pod; every change is added to `changes`."""

    def __init__(self, cluster: Cluster, changes: Changes) -> None:
        self.cluster = cluster
        self.changes = changes
        self.workers: dict[WorkerKey, WorkerClaim] = {}
        self.pods: dict[str, PodClaim] = {}
        self.lingering: dict[NodeName, Mapping[str, TerminatingHolder]] = {}
        """Lingering pods by node and pod UID."""
        self.contradictions = 0
        """Number of times the API showed a device claimed beyond its capacity."""
        self._workers_with_deadline: set[WorkerKey] = set()
        self._pods_with_deadline: set[str] = set()
        self._reservations = TokenReservations(cluster)
        self._of_job: dict[str, set[WorkerKey]] = defaultdict(set)
        self._sharing: dict[WorkerKey, set[WorkerKey]] = defaultdict(set)
        """All workers of a pod, by the pod's first worker."""
        self._in_others = Counter[AttemptKey]()
        """Number of workers of an attempt that run in a pod whose first worker is another."""
        self._serving: dict[WorkerKey, set[str]] = defaultdict(set)
        self._served: dict[AttemptKey, set[WorkerKey]] = defaultdict(set)
        """Workers for which a pod has a claim."""
        self._of_gang: dict[GangKey, set[str]] = defaultdict(set)
        """UIDs of the members of a pod group's gang that have a claim."""
        self._gangs: dict[GroupKey, set[GangKey]] = defaultdict(set)
        self._gang_named: dict[str, GangKey] = {}

    def workers_of(self, job_uid: str) -> tuple[WorkerKey, ...]:
        """Return the workers of a job that have a claim, of any attempt."""
        return tuple(self._of_job.get(job_uid, ()))

    def pods_of(self, worker: WorkerKey) -> tuple[PodClaim, ...]:
        """Return the pods of a worker that have a claim; more than one is an error elsewhere."""
        return tuple(self.pods[uid] for uid in sorted(self._serving.get(worker, ())))

    def in_pod(self, first: WorkerKey) -> tuple[WorkerClaim, ...]:
        """List the claims of a pod's workers by index; none if no pod has this first worker."""
        claim = self.workers.get(first)
        if claim is None or claim.pod != first:
            return ()
        if claim.pod_index is None:
            return (claim,)
        named = sorted(self._sharing.get(first, ()), key=lambda worker: worker.index)
        found = (self.workers[worker] for worker in named)
        return tuple(each for each in found if each.allocation.node == claim.allocation.node)

    def pods_needed(self, attempt: AttemptKey, workers: int) -> int:
        """Return the number of pods for so many workers of an attempt, of which some share pods."""
        return workers - self._in_others[attempt]

    def title(self, first: WorkerKey) -> str:
        """Return the name of a pod's place for a message."""
        held = self.in_pod(first)
        if len(held) < 2:  # noqa: PLR2004
            return "the worker's place"
        return f"the place of workers {indices.written([c.worker.index for c in held])}"

    def place_of(self, first: WorkerKey) -> Allocation | None:
        """Return what a pod's workers hold together; None if no pod with this index has a place."""
        held = self.in_pod(first)
        return claims.together([each.allocation for each in held]) if held else None

    def has_workers(self, attempt: AttemptKey) -> bool:
        """Tell whether an attempt's workers have places, planned or written.

        Only places prove it: the authors of pods write their labels.
        """
        return any(worker.attempt == attempt for worker in self._of_job.get(attempt.job_uid, ()))

    def pods_of_attempt(self, attempt: AttemptKey) -> tuple[PodClaim, ...]:
        """Return the pods that have a claim and are labelled as workers of this attempt."""
        return tuple(pod for each in self._served.get(attempt, ()) for pod in self.pods_of(each))

    def served(self, attempt: AttemptKey) -> Collection[WorkerKey]:
        """Return the workers of an attempt for which a pod has a claim; read-only."""
        return self._served.get(attempt, ())

    def members_of(self, gang: GangKey) -> tuple[PodClaim, ...]:
        """Return the members of a pod group's gang that have a claim, by UID."""
        return tuple(self.pods[uid] for uid in sorted(self._of_gang.get(gang, ())))

    def gang_named(self, gang: str) -> GangKey | None:
        """Return the gang of this name of which a member has a claim."""
        return self._gang_named.get(gang)

    def gangs_of(self, group: GroupKey) -> tuple[GangKey, ...]:
        """Return the gangs of a pod group of which a member has a claim."""
        return tuple(sorted(self._gangs.get(group, ())))

    def terminating_holder(self, node: NodeName, uid: str) -> TerminatingHolder | None:
        """Return the pod that lingers there, unless a pod's claim covers it."""
        booked = self.cluster.placement_of(terminating_holder(node, uid)) is not None
        return self.lingering.get(node, {}).get(uid) if booked else None

    def see_all(self) -> None:
        """Add everything to `changes`, for its reader."""
        for worker in self.workers:
            self.changes.attempt(worker.attempt)
        for claim in self.pods.values():
            if claim.worker:
                self.changes.attempt(claim.worker.attempt)
            else:
                self.changes.pod(claim.uid)
        for node, holders in self.lingering.items():
            for uid in holders:
                self.changes.add_terminating(node, uid)

    def places_of(self, attempt: AttemptKey) -> dict[WorkerKey, Allocation]:
        """Return the places of an attempt's workers by their own claims, without those of pods."""
        workers = (w for w in self.workers_of(attempt.job_uid) if w.attempt == attempt)
        return {worker: self.workers[worker].allocation for worker in workers}

    def expire(self, now: float) -> None:
        """End pods' claims whose deadline has passed; claims without a deadline cost nothing."""
        for uid in [uid for uid in self._pods_with_deadline if self.pods[uid].deadline <= now]:
            self.drop_pod(uid)

    def after_holds(self) -> Cluster | None:
        """Return a copy of the cluster after the holds on finished pods; None if there are none.

        The copy still holds what stays held then, for a worker or for a lingering pod.
        """
        pods = (self.pods[uid] for uid in self._pods_with_deadline)
        ending = [claim for claim in pods if self._frees_at_its_end(claim)]
        if not ending:
            return None
        later = self.cluster.fork()
        reservations = self._reservations.on(later)
        for claim in ending:
            later.give_back(pod_holder(claim.uid))
            reservations.put(pod_holder(claim.uid), None)
        for node in {claim.allocation.node for claim in ending}:
            reservations.recompute(node)
        return later

    def _frees_at_its_end(self, claim: PodClaim) -> bool:
        lingers = claim.uid in self.lingering.get(claim.allocation.node, {})
        is_planned = claim.worker is not None and claim.worker in self.workers
        return claim.state is State.FINISHED and not lingers and not is_planned

    def overdue(self, now: float) -> tuple[WorkerKey, ...]:
        """Return the workers whose claim should have been written by now."""
        return tuple(w for w in self._workers_with_deadline if self.workers[w].deadline <= now)

    def put_worker(self, claim: WorkerClaim) -> None:
        """Add or replace a worker's claim."""
        self.change_workers(put=(claim,))

    def drop_worker(self, worker: WorkerKey) -> None:
        """End a worker's claim. Its pod's claim, if there is one, stays."""
        self.change_workers(drop=(worker,))

    def change_workers(
        self, *, put: Iterable[WorkerClaim] = (), drop: Iterable[WorkerKey] = ()
    ) -> None:
        """End and add claims of workers in one step, since a pod covers all its workers."""
        changed: dict[WorkerKey, None] = {}
        for worker in drop:
            if (ended := self.workers.pop(worker, None)) is not None:
                self._leave_pod(ended)
                self._workers_with_deadline.discard(worker)
                _discard(self._of_job, worker.attempt.job_uid, worker)
                changed |= dict.fromkeys((worker, ended.pod))
        for claim in put:
            if (before := self.workers.get(claim.worker)) is not None:
                self._leave_pod(before)
                changed[before.pod] = None
            self.workers[claim.worker] = claim
            if claim.pod_index is not None:
                self._sharing[claim.pod].add(claim.worker)
                self._in_others[claim.worker.attempt] += claim.pod != claim.worker
            _mark(self._workers_with_deadline, claim.worker, deadline=claim.deadline)
            self._of_job[claim.worker.attempt.job_uid].add(claim.worker)
            changed |= dict.fromkeys((claim.worker, claim.pod))
        self._hold_workers(changed)
        for attempt in dict.fromkeys(worker.attempt for worker in changed):
            self.changes.attempt(attempt)

    def _leave_pod(self, claim: WorkerClaim) -> None:
        if claim.pod_index is not None:
            _discard(self._sharing, claim.pod, claim.worker)
            attempt = claim.worker.attempt
            self._in_others[attempt] -= claim.pod != claim.worker
            if not self._in_others[attempt]:
                del self._in_others[attempt]

    def put_pod(self, claim: PodClaim) -> None:
        """Add or replace a pod's claim."""
        before = self.pods.get(claim.uid)
        if before and before.gang != claim.gang:
            self._leave_gang(before)
        if claim.gang:
            self._of_gang[claim.gang].add(claim.uid)
            self._gangs[claim.gang.group].add(claim.gang)
            self._gang_named[claim.gang.gang] = claim.gang
        self.pods[claim.uid] = claim
        _mark(self._pods_with_deadline, claim.uid, deadline=claim.deadline)
        if before and before.worker and before.worker != claim.worker:
            self._leave(claim.uid, before.worker)
        if before and before.worker != claim.worker:
            self.changes.pod(claim.uid)
        if claim.worker:
            self._serving[claim.worker].add(claim.uid)
            self._served[claim.worker.attempt].add(claim.worker)
            self._hold_workers((claim.worker,))
            self.changes.attempt(claim.worker.attempt)
        else:
            self.changes.pod(claim.uid)
        self._hold(pod_holder(claim.uid), claim.allocation)
        self._hold_terminating(claim.allocation.node, claim.uid)
        if before and before.allocation.node != claim.allocation.node:
            self._hold_terminating(before.allocation.node, claim.uid)

    def drop_pod(self, uid: str) -> None:
        """End a pod's claim. Its worker's claim, if there is one, counts again."""
        claim = self.pods.pop(uid, None)
        if claim is None:
            return
        self._leave_gang(claim)
        self._pods_with_deadline.discard(uid)
        self._hold(pod_holder(uid), None)
        self._hold_terminating(claim.allocation.node, uid)
        if claim.worker:
            self._leave(uid, claim.worker)
        else:
            self.changes.pod(uid)

    def _leave_gang(self, claim: PodClaim) -> None:
        gang = claim.gang
        if gang is not None:
            _discard(self._of_gang, gang, claim.uid)
            if gang not in self._of_gang:
                _discard(self._gangs, gang.group, gang)
                self._gang_named.pop(gang.gang, None)

    def node_changed(self, name: NodeName) -> None:
        """Record that a node's devices changed, and set GPUs aside for its tokens again."""
        self._reservations.recompute(name)
        self.changes.node(name)

    def set_terminating_on(self, node: NodeName, holders: Mapping[str, TerminatingHolder]) -> None:
        """Replace the lingering pods of a node by these, by UID."""
        before = self.lingering.pop(node, {})
        if holders:
            self.lingering[node] = holders
        for uid in sorted(before.keys() | holders.keys()):
            self._hold_terminating(node, uid)

    def allocation(self, placement: Placement) -> Allocation:
        """Return what a decision of placement holds: of observed GPUs only their number."""
        resource = self._resource_of(placement)
        if not resource:
            return Allocation(placement)
        unnamed = dataclasses.replace(placement, devices=())
        return Allocation(unnamed, {resource: len(placement.devices)})

    def _resource_of(self, placement: Placement) -> str:
        """Return the name under which another plugin hands out its devices; empty: gpupack does."""
        node, granted = self.cluster.node(placement.node), {g.uuid for g in placement.devices}
        devices = node.devices if node else ()
        found = next((device.resource for device in devices if device.uuid in granted), "")
        return "" if found == ACCEPTANCE else found

    def obstacle(self, allocation: Allocation, *, may_be_left: bool = False) -> str:
        """Return why a held place cannot be used now; empty if it can.

        Args:
            allocation: the place.
            may_be_left: nothing runs there yet, so another place may be found. GPUs that get no new
                work are then obstacles too.
        """
        node = self.cluster.node(allocation.node)
        if node is None:
            return f"node {allocation.node} has no GPU inventory"
        if not node.ready:
            return (
                f"node {allocation.node} is not ready, or its kubelet has no GPUs to hand out now"
            )
        refused = _NO_NEW_WORK if may_be_left else _NO_WORK
        return self._devices_obstacle(allocation, node, refused) or self._tickets_obstacle(
            allocation, node
        )

    def _tickets_obstacle(self, allocation: Allocation, node: Node) -> str:
        for resource in allocation.tokens:
            there = sum(device.resource == resource for device in node.devices)
            if not there:
                return f"node {node.name} does not hand out {resource}"
            if self._reservations.needed(node.name, resource) > there:
                return f"more {resource} are claimed on node {node.name} than it has"
        return ""

    def _devices_obstacle(
        self, allocation: Allocation, node: Node, refused: Mapping[Health, str]
    ) -> str:
        devices = {device.uuid: device for device in node.devices}
        for grant in allocation.placement.devices:
            device = devices.get(grant.uuid)
            if device is None:
                return f"GPU {grant.uuid} is not on node {node.name} any more"
            if device.health in refused:
                return f"GPU {grant.uuid} on node {node.name} {refused[device.health]}"
            if self._is_overbooked(node.name, device):
                return f"GPU {grant.uuid} on node {node.name} is claimed by others too"
        return ""

    def report_overbooked(self, placement: Placement, *, of: str) -> None:
        """Log and count a contradiction: a place just adopted from the API that is not free.

        An overlap with a lingering pod is no contradiction: the agent may report the pod after the
        place was given.
        """
        node = self.cluster.node(placement.node)
        granted = {grant.uuid for grant in placement.devices}
        for device in node.devices if node else ():
            if device.uuid in granted and self._is_overbooked(
                placement.node, device, with_lingering=False
            ):
                self.contradictions += 1
                log.error(
                    "GPU %s on node %s is claimed beyond what it has, by %s too; all stay held",
                    *(device.uuid, placement.node, of),
                )

    def _is_overbooked(
        self, node: NodeName, device: Device, *, with_lingering: bool = True
    ) -> bool:
        holders = self.cluster.holders_of(node=node, uuid=device.uuid)
        counted = [each for each in holders if with_lingering or not is_terminating(each)]
        grants = list(self._grants_of(counted, device.uuid))
        return len(grants) > 1 and (
            sum(grant.milli for grant in grants) > WHOLE_GPU
            or sum(grant.memory for grant in grants) > device.memory
            or sum(grant.shares for grant in grants) > device.max_shares
        )

    def _grants_of(self, holders: Iterable[Holder], uuid: DeviceUuid) -> Iterator[Grant]:
        for holder in holders:
            placement = self.cluster.placement_of(holder)
            yield from (g for g in placement.devices if g.uuid == uuid) if placement else ()

    def _leave(self, uid: str, worker: WorkerKey) -> None:
        _discard(self._serving, worker, uid)
        if worker not in self._serving:
            _discard(self._served, worker.attempt, worker)
        self._hold_workers((worker,))
        self.changes.attempt(worker.attempt)

    def _hold_workers(self, changed: Iterable[WorkerKey]) -> None:
        """Hold the uncovered places of these workers, and of those that share their pods."""
        listed = tuple(changed)
        covered: set[WorkerKey] = set()
        found = dict.fromkeys(listed)
        for first in listed:
            held = self.in_pod(first)
            found |= dict.fromkeys(self._sharing.get(first, ()))
            if held and self._is_covered(first, held):
                covered.update(claim.worker for claim in held)
        for worker in found:
            claim = self.workers.get(worker)
            counted = claim is not None and worker not in covered
            self._hold(worker.holder, claim.allocation if claim and counted else None)

    def _is_covered(self, first: WorkerKey, held: Sequence[WorkerClaim]) -> bool:
        pods = self.pods_of(first)
        if not pods:
            return False
        place = claims.together([each.allocation for each in held])
        return any(_covers(pod.allocation, place) for pod in pods)

    def _hold_terminating(self, node: NodeName, uid: str) -> None:
        lingers = self.lingering.get(node, {}).get(uid)
        placement = lingers.placement if lingers else None
        pod = self.pods.get(uid)
        counted = placement is not None and not (pod and _names_all(pod.placement, placement))
        allocation = Allocation(placement) if placement and counted else None
        self._hold(terminating_holder(node, uid), allocation)
        self.changes.add_terminating(node, uid)

    def _hold(self, holder: Holder, allocation: Allocation | None) -> None:
        """Change what a holder holds into exactly this place."""
        held, wanted = (
            self.cluster.placement_of(holder),
            allocation.placement if allocation else None,
        )
        if held != wanted:
            if held is not None:
                self.cluster.give_back(holder)
                self._reservations.recompute(held.node)
                self.changes.add_released(held.node)
            if wanted is not None:
                self.cluster.adopt(holder, wanted)
                self._reservations.recompute(wanted.node)
        self._reservations.put(holder, allocation)


def _covers(pod: Allocation, worker: Allocation) -> bool:
    """Tell whether a pod's place is its worker's: the same devices, or at least as many GPUs."""
    return (
        pod.node == worker.node
        and set(pod.placement.devices) == set(worker.placement.devices)
        and all(pod.tokens.get(name, 0) >= number for name, number in worker.tokens.items())
    )


def _names_all(claimed: Placement, lingering: Placement) -> bool:
    """Tell whether a pod's claim holds every device on which the pod is said to linger."""
    uuids = {grant.uuid for grant in claimed.devices}
    return claimed.node == lingering.node and all(g.uuid in uuids for g in lingering.devices)


def _mark(with_deadline: set[K], key: K, *, deadline: float) -> None:
    """Keep the keys of claims with a deadline in a separate set: there are few at a time."""
    if math.isfinite(deadline):
        with_deadline.add(key)
    else:
        with_deadline.discard(key)


def _discard(groups: dict[K, set[V]], key: K, value: V) -> None:
    groups[key].discard(value)
    if not groups[key]:
        del groups[key]
