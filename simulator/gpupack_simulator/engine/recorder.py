# SPDX-License-Identifier: Apache-2.0
"""The records of a run: counters, and what has ended."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpupack_cost import charge_of_grant, model_label
from gpupack_placement import (
    WHOLE_GPU,
    Cluster,
    Device,
    DeviceUuid,
    Grant,
    IntArray,
    Node,
    NodeName,
    Placement,
)
from gpupack_simulator.engine.job_state import JobState
from gpupack_simulator.job import JobId
from gpupack_simulator.record import Cause, Consolidation, End, JobRecord, Loss, Occupancy


@dataclass(slots=True)
class Recorder:
    """The records of a run; mutable, belongs to one engine. Capacity is in milli-GPU."""

    measured_from: float
    keep_occupancy: bool = True
    allocated: int = 0
    arrived: int = 0
    area: float = 0.0
    """Allocated milli-GPU times time, from measured_from on."""
    events: int = 0
    occupancy: list[Occupancy] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    consolidations: list[Consolidation] = field(default_factory=list)
    inventory: Mapping[NodeName, Node] = field(default_factory=dict)
    """The nodes, from which the charged milli-GPU and the model of devices are read."""

    def pass_time(self, start: float, end: float) -> None:
        """Account for a time without events."""
        since = max(start, self.measured_from)
        if end > since:
            self.area += self.allocated * (end - since)

    def lose(self, entry: JobState, now: float, node: NodeName, cause: Cause) -> None:
        """Record a lost attempt; its unsaved work is done again."""
        milli_time = entry.job.milli * entry.save_work(now)
        if entry.course is not None:
            entry.course.pass_time(now)
            milli_time = entry.job.request.milli * entry.course.held_gpu_time
        self.losses.append(Loss(now, entry.job.id, node, cause, milli_time))

    def vacate(self, entry: JobState, end: float) -> None:
        """Record that the attempt no longer holds its devices."""
        self.occupancy += self.held_by(entry, end)

    def vacate_extra(
        self, job: JobId, placements: tuple[Placement, ...], start: float, end: float
    ) -> None:
        """Record that an extra worker of an elastic job no longer holds its devices."""
        if self.keep_occupancy:
            self.occupancy += self._occupancy(placements, job, start, end)

    def held_by(self, entry: JobState, end: float | None) -> list[Occupancy]:
        """Return one occupancy per device of each worker of this attempt, for the Gantt plot."""
        if not self.keep_occupancy:
            return []
        start = 0.0 if entry.started is None else entry.started
        return self._occupancy(entry.placements, entry.job.id, start, end)

    def record_snapshot_holders(self, cluster: Cluster) -> None:
        """Record the GPUs that a snapshot holds from the start, under their holders' names."""
        slices = {d.uuid for node in cluster.nodes() for d in node.devices if d.is_slice}
        for holder, placement in cluster.held().items():
            held = self._occupancy((placement,), JobId(holder), 0.0, None)
            self.occupancy += [each for each in held if each.device not in slices]

    def _occupancy(
        self, placements: Iterable[Placement], job: JobId, start: float, end: float | None
    ) -> list[Occupancy]:
        return [
            Occupancy(
                placement.node,
                grant.uuid,
                job,
                start,
                end,
                grant.milli,
                *self._counted(placement.node, grant),
            )
            for placement in placements
            for grant in placement.devices
        ]

    def _counted(self, name: NodeName, grant: Grant) -> tuple[int, str]:
        """Return the charged milli-GPU of a grant and the label of its model."""
        node = self.inventory.get(name)
        device = None if node is None else _devices(node).get(grant.uuid)
        if node is None or device is None:
            return grant.milli, ""
        return charge_of_grant(grant, device, node.devices), model_label(
            device.model, device.memory
        )


def _devices(node: Node) -> Mapping[DeviceUuid, Device]:
    return {device.uuid: device for device in node.devices}


def job_record(entry: JobState, now: float) -> JobRecord:
    """Return the record of the job's current state."""
    waited = entry.total_wait + (now - entry.waiting_since if entry.end is End.WAITING else 0.0)
    return JobRecord(
        job=entry.job,
        submitted=entry.job.arrival,
        started=entry.started,
        ended=entry.ended,
        end=entry.end,
        placements=entry.placements,
        attempts=entry.attempts,
        preemptions=entry.preemptions,
        moves=entry.moves,
        wait=None if entry.end is End.DROPPED else waited,
        resizes=0 if entry.course is None else entry.course.resizes,
        mean_width=_mean_width(entry, now),
        reason=entry.reason,
    )


def _mean_width(entry: JobState, now: float) -> float | None:
    course = entry.course
    if course is None:
        return None
    if entry.end is End.RUNNING:
        course.pass_time(now)
    until = now if entry.ended is None else entry.ended
    return course.held_gpu_time / (until - course.started) if until > course.started else None


def capacity_of(cluster: Cluster) -> int:
    """Return the milli-GPU of all GPUs in any health; MIG slices have none."""
    return WHOLE_GPU * int(cluster.arrays.gpus.sum())


def allocated_of(cluster: Cluster) -> IntArray:
    """Return the milli-GPU in use, by row."""
    arrays = cluster.arrays
    allocated: IntArray = (arrays.used_milli * (arrays.capacity > 0)).sum(axis=1)
    return allocated


def without_slices(node: Node) -> Node:
    """Return the node with only its GPUs, for figures and plots."""
    return replace(node, devices=tuple(d for d in node.devices if not d.is_slice))
