# SPDX-License-Identifier: Apache-2.0
"""Claims, and the cluster's arrays kept equal to them.

Invariant: core's cluster holds exactly the pods' claims, those workers' claims that no pod's claim
covers, and what `tickets` sets aside. Only the two modules take from and give back to the cluster.

A pod covers its worker only if it holds the same devices on the same node. Should the API ever
say otherwise, both stay held: a device too many is held, never a device twice given out.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

import gpupack_core as core
from gpupack_extender.ledger.claims import PodClaim, WorkerClaim
from gpupack_extender.ledger.tickets import Tickets
from gpupack_extender.ledger.workers import Worker, pod_holder

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


class Books:
    """Who claims what."""

    def __init__(self, cluster: core.Cluster) -> None:
        self.cluster = cluster
        self.workers: dict[Worker, WorkerClaim] = {}
        self.pods: dict[str, PodClaim] = {}
        self.contradictions = 0
        """How often the API showed a device claimed beyond what it has."""
        self._tickets = Tickets(cluster)
        self._of_job: dict[str, set[Worker]] = defaultdict(set)
        self._serving: dict[Worker, set[str]] = defaultdict(set)

    def workers_of(self, job_uid: str) -> tuple[Worker, ...]:
        """The workers of a job that have a claim, of whatever attempt."""
        return tuple(self._of_job.get(job_uid, ()))

    def pods_of(self, worker: Worker) -> tuple[PodClaim, ...]:
        """The pods of a worker that have a claim; more than one is somebody's error."""
        return tuple(self.pods[uid] for uid in sorted(self._serving.get(worker, ())))

    def put_worker(self, claim: WorkerClaim) -> None:
        """Add a worker's claim or replace the one there is."""
        self.workers[claim.worker] = claim
        self._of_job[claim.worker.attempt.job_uid].add(claim.worker)
        self._book_worker(claim.worker)

    def drop_worker(self, worker: Worker) -> None:
        """End a worker's claim. Its pod's claim, if there is one, stays."""
        if self.workers.pop(worker, None) is None:
            return
        _discard(self._of_job, worker.attempt.job_uid, worker)
        self._book_worker(worker)

    def put_pod(self, claim: PodClaim) -> None:
        """Add a pod's claim or replace the one there is."""
        before = self.pods.get(claim.uid)
        self.pods[claim.uid] = claim
        if before and before.placement.node != claim.placement.node:
            self._tickets.count(claim.uid, node=before.placement.node, tickets=0)
        if before and before.worker and before.worker != claim.worker:
            self._leave(claim.uid, before.worker)
        if claim.worker:
            self._serving[claim.worker].add(claim.uid)
            self._book_worker(claim.worker)
        self._book(pod_holder(claim.uid), claim.placement)
        self._tickets.count(claim.uid, node=claim.placement.node, tickets=claim.tickets)

    def drop_pod(self, uid: str) -> None:
        """End a pod's claim. Its worker's claim, if there is one, counts again."""
        claim = self.pods.pop(uid, None)
        if claim is None:
            return
        self._book(pod_holder(uid), None)
        self._tickets.count(uid, node=claim.placement.node, tickets=0)
        if claim.worker:
            self._leave(uid, claim.worker)

    def node_changed(self, name: core.NodeName) -> None:
        """The cluster has other devices there now."""
        self._tickets.seat(name)

    def obstacle(self, placement: core.Placement) -> str:
        """Why a held place cannot be used now; empty if it can."""
        node = self.cluster.node(placement.node)
        if node is None:
            return f"node {placement.node} has no GPU inventory"
        devices = {device.uuid: device for device in node.devices}
        for grant in placement.devices:
            device = devices.get(grant.uuid)
            if device is None:
                return f"GPU {grant.uuid} is not on node {node.name} any more"
            if device.health is core.Health.FAILED:
                return f"GPU {grant.uuid} on node {node.name} failed"
            if self._is_overbooked(node.name, device):
                return f"GPU {grant.uuid} on node {node.name} is claimed by others too"
        return ""

    def report_overbooked(self, placement: core.Placement, *, of: str) -> None:
        """Log and count it when a place just adopted from the API is not free: nobody may."""
        node = self.cluster.node(placement.node)
        granted = {grant.uuid for grant in placement.devices}
        for device in node.devices if node else ():
            if device.uuid in granted and self._is_overbooked(placement.node, device):
                self.contradictions += 1
                log.error(
                    "GPU %s on node %s is claimed beyond what it has, by %s too; all stay held",
                    *(device.uuid, placement.node, of),
                )

    def _is_overbooked(self, node: core.NodeName, device: core.Device) -> bool:
        grants = list(self._grants_of(node, device.uuid))
        milli, memory = sum(g.milli for g in grants), sum(g.memory for g in grants)
        return len(grants) > 1 and (milli > core.WHOLE_GPU or memory > device.memory)

    def _grants_of(self, node: core.NodeName, uuid: core.DeviceUuid) -> Iterator[core.Grant]:
        for holder in self.cluster.holders_of(node=node, uuid=uuid):
            placement = self.cluster.placement_of(holder)
            yield from (g for g in placement.devices if g.uuid == uuid) if placement else ()

    def _leave(self, uid: str, worker: Worker) -> None:
        _discard(self._serving, worker, uid)
        self._book_worker(worker)

    def _book_worker(self, worker: Worker) -> None:
        claim = self.workers.get(worker)
        counted = claim is not None and not self._is_covered(claim)
        self._book(worker.holder, claim.placement if claim and counted else None)

    def _is_covered(self, claim: WorkerClaim) -> bool:
        pods = self.pods_of(claim.worker)
        return any(_same_devices(pod.placement, claim.placement) for pod in pods)

    def _book(self, holder: core.Holder, placement: core.Placement | None) -> None:
        held = self.cluster.placement_of(holder)
        if held == placement:
            return
        if held is not None:
            self.cluster.give_back(holder)
            self._tickets.seat(held.node)
        if placement is not None:
            self.cluster.adopt(holder, placement)
            self._tickets.seat(placement.node)


def _same_devices(one: core.Placement, other: core.Placement) -> bool:
    return (one.node, set(one.devices)) == (other.node, set(other.devices))


def _discard(groups: dict[K, set[V]], key: K, value: V) -> None:
    groups[key].discard(value)
    if not groups[key]:
        del groups[key]
