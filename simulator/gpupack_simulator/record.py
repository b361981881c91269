# SPDX-License-Identifier: Apache-2.0
"""The record of a run: the interface between the engine, which writes it, and all output.

Times are in the run's unit. Capacity is in milli-GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpupack_placement import Cluster, DeviceUuid, Node, NodeName, Placement
from gpupack_simulator.job import Job, JobId


class TimeUnit(StrEnum):
    """The meaning of a time of 1."""

    SECOND = "s"
    STEP = "step"
    LIFETIME = "lifetime"
    """Mean lifetime of a job, in workloads with exponential lifetimes."""
    ARRIVAL = "arrival"
    """One job, in experiments without a clock: the published one."""


class End(StrEnum):
    """The state of a job when the run ends."""

    SUCCEEDED = "succeeded"
    DROPPED = "dropped"
    """Refused on arrival: by the discipline, or since it does not fit on the empty cluster."""
    KILLED = "killed"
    """Stopped by the loss of its node or GPU, in a scenario that does not queue such jobs again."""
    CANCELLED = "cancelled"
    """Cancelled by its user, in the queue or while it ran."""
    TIMED_OUT = "timed-out"
    """Ended unfinished at the maximum run time of its cohort."""
    RUNNING = "running"
    WAITING = "waiting"


class Cause(StrEnum):
    """The reason why capacity is unused; keys of Sample.free_by_cause and of losses."""

    FAILED = "failed"
    """GPU or node out of order."""
    NO_DEMAND = "no-demand"
    """Free, and no job waits for GPUs."""
    HELD_BACK = "held-back"
    """Free, and a worker of a waiting job fits here: the discipline, or the rest of its gang, holds
    it back."""
    FRAGMENTED = "fragmented"
    """Free, too little of it on this node for any waiting job."""
    STRANDED = "stranded"
    """Free, enough for a waiting job, but the node's CPU or memory is exhausted."""
    WRONG_KIND = "wrong-kind"
    """Free, but of a model, size or node that no waiting job may use."""
    KILLED_WORK = "killed-work"
    """Work that was lost with its node or GPU and is done again."""
    PREEMPTED = "preempted"
    """Work of jobs that were preempted and is done again."""
    MOVED = "moved"
    """Work of jobs that were moved and is done again, and their restarts."""
    DRAINED = "drained"
    """Work of jobs that were stopped for maintenance and is done again."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The record of one job.

    `started`: start of the last attempt; None: never. `wait`: time in the queue so far, over all
    attempts; None: dropped on arrival. `ended` None: it still runs or waits.
    """

    job: Job
    submitted: float
    started: float | None
    ended: float | None
    end: End
    placements: tuple[Placement, ...] = ()
    """Placements of the last attempt, by worker; empty: never placed."""
    attempts: int = 0
    preemptions: int = 0
    """Number of preemptions."""
    moves: int = 0
    """Number of moves."""
    wait: float | None = None
    resizes: int = 0
    """Number of changes of an elastic job's width in its last attempt."""
    mean_width: float | None = None
    """Mean workers of an elastic job over its last attempt; None: not elastic, or it never ran."""
    reason: str = ""
    """Reason why it was dropped, or why it waits at the end if that was requested."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one instant, after all its events."""

    time: float
    arrived_milli: int
    """GPU capacity that all jobs so far requested."""
    allocated_milli: int
    capacity_milli: int
    """Capacity of all devices, including failed ones."""
    fragmented_milli: int | None
    """FGD's measure; None: not sampled."""
    queued_jobs: int
    running_jobs: int
    free_by_cause: Mapping[str, int] = field(default_factory=dict)
    """Milli-GPU by Cause; adds up to capacity - allocated. Empty in all samples: not sampled."""
    allocated_by_node: Mapping[NodeName, int] = field(default_factory=dict)
    """Milli-GPU; empty: not sampled."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The part of one device that a job held for a time. `end` None: beyond the end of the run.

    `charged`: milli-GPU that it counts in quotas and in costs. `model`: that of the device; empty:
    the device was in no inventory.
    """

    node: NodeName
    device: DeviceUuid
    job: JobId
    start: float
    end: float | None
    milli: int
    charged: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt that was cut short, with its lost work."""

    time: float
    job: JobId
    node: NodeName
    cause: Cause
    milli_time: float
    """Milli-GPU times the run's time unit."""


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage of a node (`device` None) or of one of its devices. `end` None: beyond the run."""

    node: NodeName
    device: DeviceUuid | None
    start: float
    end: float | None


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Moves of jobs to make room for another; costs in milli-GPU times the run's time unit.

    `lost`: estimated cost of the moves; `gained`: estimated gain of the other job.
    """

    time: float
    job: JobId
    moved: int
    lost: float
    gained: float


@dataclass(frozen=True, slots=True)
class Run:
    """The record of a run of one policy and one seed."""

    policy: str
    seed: int
    parameters: Mapping[str, str | int | float | bool]
    """Parameters of the run: discipline, load, demand, file names."""
    time_unit: TimeUnit
    nodes: tuple[Node, ...]
    jobs: tuple[JobRecord, ...]
    samples: tuple[Sample, ...]
    occupancy: tuple[Occupancy, ...]
    """Holders of devices; empty if not requested."""
    losses: tuple[Loss, ...]
    outages: tuple[Outage, ...]
    measured_from: float
    """Start of the steady state: jobs that arrived earlier, and samples before, are warm-up."""
    allocated_milli_time: float
    """Milli-GPU in use times the run's time unit, exactly, from measured_from to the end."""
    ended: float
    """The clock at the end of the run."""
    events: int
    seconds_of_wall: float
    consolidations: tuple[Consolidation, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """The current state of a run, for step-by-step output; valid until the simulator continues."""

    time: float
    time_unit: TimeUnit
    policy: str
    cluster: Cluster
    """The engine's cluster, which must not be changed. Holders are `holder_of(job, worker)`."""
    jobs: tuple[JobRecord, ...]
    """Every job that has arrived, in the order of arrival."""
    expected: tuple[Job, ...]
    """Jobs that have not arrived yet."""
    sample: Sample
