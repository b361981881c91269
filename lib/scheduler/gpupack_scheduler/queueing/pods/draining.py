# SPDX-License-Identifier: Apache-2.0
"""Drains for maintenance, from the specs of GPUNodes.

The order is in the spec for as long as it holds, so this module stores nothing: a new leader reads
it again. The operator ends attempts of GPUJobs; standalone pods are evicted.
"""

import datetime as dt
from collections.abc import Iterator
from math import inf
from typing import Final

from gpupack_crds.gpunode import Maintenance
from gpupack_crds.kinds import GpuNode
from gpupack_crds.plan import Drained
from gpupack_placement import Cluster, DeviceUuid, NodeName
from gpupack_queue import Drains, Queue, RunningJob, node_to_drain
from gpupack_scheduler.ledger.claims import State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.pending.request import is_attempt, pods_of
from gpupack_scheduler.queueing.pods.conditions import Eviction
from gpupack_scheduler.queueing.running.holders import has_ended

GROUND: Final = "Maintenance"


class DrainActions:
    """The drains in progress, read from specs and claims at each call: maintenance is rare."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def movable(self) -> Drains:
        """Return the devices that movable jobs leave as soon as they have another place."""
        return self._drains({"Movable", "All"}, at=inf)

    def why(self, running: RunningJob) -> tuple[NodeName, str]:
        """Return the first node on which a job must leave devices, and the reason."""
        drains = self.movable()
        node = node_to_drain(running.placements, drains)
        return (NodeName(""), "") if node is None else (node, self._why(running, node, inf))

    def stopped(self, queue: Queue, now: float, *, settled: bool) -> Iterator[Drained]:
        """Yield attempts that must end and have not been ended yet.

        If `settled` is False movable ones are omitted: the queue may still find another place for
        them.
        """
        return (
            Drained(attempt=running.job.id, node=node, cause=self._why(running, node, now))
            for running, node in self._to_stop(queue, now)
            if is_attempt(running.job.id)
            and not has_ended(self._ledger, running.job.id)
            and (settled or not running.job.movable)
        )

    def evictions(self, queue: Queue, now: float) -> Iterator[Eviction]:
        """Yield standalone pods that must end and are not being deleted yet.

        Of a pod group only the members there end: its owner replaces them.
        """
        drains = self._drains({"All"}, at=now)
        for running, node in self._to_stop(queue, now):
            for claim in pods_of(self._ledger.claims, running.job.id):
                is_there = node_to_drain((claim.placement,), drains) is not None
                if not is_there or claim.leaves or claim.state is not State.BOUND:
                    continue
                why = f"for maintenance of node {node}: {self._why(running, node, now)}"
                yield Eviction(claim.uid, claim.namespace, claim.name, GROUND, why)

    def _to_stop(self, queue: Queue, now: float) -> Iterator[tuple[RunningJob, NodeName]]:
        """Yield jobs that hold devices which must be free by now, with the node."""
        drains = self._drains({"All"}, at=now)
        cluster = self._ledger.cluster
        if not drains:
            return
        held = {node: of for node, of in drains.items() if _is_held(cluster, node, of)}
        for running in queue.state.running if held else ():
            node = node_to_drain(running.placements, held)
            if node is not None and not self._is_moved(running, queue):
                yield running, node

    def _is_moved(self, running: RunningJob, queue: Queue) -> bool:
        """Tell whether a job is on its way to another place."""
        reserved = queue.state.reserved.get(running.job.id)
        return reserved is not None and running.job.id in reserved.victims

    def _drains(self, kinds: set[str], *, at: float) -> Drains:
        drains: dict[NodeName, frozenset[DeviceUuid] | None] = {}
        for name, gpus in self._ledger.maintained.items():
            entries = [e for e in gpus.spec.maintenance if e.drain in kinds and _stop_at(e) <= at]
            if entries:
                drains[NodeName(name)] = _devices(gpus, entries)
        return drains

    def _why(self, running: RunningJob, node: NodeName, at: float) -> str:
        """Return the reason of the first entry that covers the job's devices and is due by `at`."""
        gpus = self._ledger.maintained[node]
        for entry in gpus.spec.maintenance:
            strikes = entry.drain != "Never" and _stop_at(entry) <= at
            if strikes and node_to_drain(running.placements, {node: _devices(gpus, [entry])}):
                return entry.reason
        return ""


def _is_held(cluster: Cluster, node: NodeName, devices: frozenset[DeviceUuid] | None) -> bool:
    """Tell whether any holder has these devices."""
    if devices is None:
        return bool(cluster.holders_on(node))
    return any(cluster.holders_of(node=node, uuid=uuid) for uuid in devices)


def _devices(gpus: GpuNode, entries: list[Maintenance]) -> frozenset[DeviceUuid] | None:
    """Return the devices of the entries; None: all devices of the node."""
    if gpus.status.mode == "observed" or not all(entry.gpus for entry in entries):
        return None
    return frozenset(DeviceUuid(uuid) for entry in entries for uuid in entry.gpus)


def _stop_at(entry: Maintenance) -> float:
    """Return when jobs must end, seconds since the epoch; -infinity: at once.

    Infinity: the entry ends no jobs, or its time cannot be read.
    """
    if entry.drain != "All":
        return inf
    if entry.stop_at is None:
        return -inf
    try:
        return dt.datetime.fromisoformat(entry.stop_at).timestamp()
    except (ValueError, OverflowError):
        return inf
