# SPDX-License-Identifier: Apache-2.0
"""What a run leaves behind: the seam between the engine, which writes it, and all output.

Times are in the run's unit. Capacity is in milli-GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpupack_core import Cluster, DeviceUuid, Node, NodeName, Placement
from gpupack_simulator.job import Job, JobId


class TimeUnit(StrEnum):
    """What a time of 1 means."""

    SECOND = "s"
    STEP = "step"
    LIFETIME = "lifetime"
    """Mean lifetime of a job, in workloads with exponential lifetimes."""
    ARRIVAL = "arrival"
    """One job, in experiments without a clock: the published one."""


class End(StrEnum):
    """How a job stands when the run ends."""

    SUCCEEDED = "succeeded"
    DROPPED = "dropped"
    """Refused on arrival: by the discipline, or since it fits not even the empty cluster."""
    KILLED = "killed"
    """Lost its node or GPU, and the scenario does not queue such jobs again."""
    CANCELLED = "cancelled"
    """Taken back by who submitted it, in the queue or while it ran."""
    RUNNING = "running"
    WAITING = "waiting"


class Cause(StrEnum):
    """Why a part of the capacity serves nobody; keys of Sample.free_by_cause and of losses."""

    FAILED = "failed"
    """GPU or node out of order."""
    NO_DEMAND = "no-demand"
    """Free, and no job waits for GPUs."""
    HELD_BACK = "held-back"
    """Free, and a worker of a waiting job fits here: the discipline, or the rest of its gang,
    holds it back."""
    FRAGMENTED = "fragmented"
    """Free, too little of it on this node for any waiting job."""
    STRANDED = "stranded"
    """Free, enough for a waiting job, but the node's CPU or memory is exhausted."""
    WRONG_KIND = "wrong-kind"
    """Free, but of a model, size or node that no waiting job may use."""
    KILLED_WORK = "killed-work"
    """Work that was lost with its node or GPU and is done again."""
    PREEMPTED = "preempted"
    """Work of jobs that were stopped for others and is done again."""
    MOVED = "moved"
    """Work of jobs that were moved and is done again, and their restarts."""
    DRAINED = "drained"
    """Work of jobs that were stopped for maintenance and is done again."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job.

    `started`: the last attempt's; None: never. `wait`: time in the queue so far, over all
    attempts; None: dropped on arrival. `ended` None: it runs or waits still.
    """

    job: Job
    submitted: float
    started: float | None
    ended: float | None
    end: End
    placements: tuple[Placement, ...] = ()
    """Of the last attempt, by worker; empty: never placed."""
    attempts: int = 0
    preemptions: int = 0
    """How often it was stopped for another."""
    moves: int = 0
    """How often it was moved."""
    wait: float | None = None
    resizes: int = 0
    """How often the width of an elastic job changed, in its last attempt."""
    mean_width: float | None = None
    """Workers of an elastic job over its last attempt; None: it is not elastic, or never ran."""
    reason: str = ""
    """Why it was dropped, or why it waits at the end where that was asked."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one instant, after all that happens in it."""

    time: float
    arrived_milli: int
    """GPU capacity asked for by all jobs so far."""
    allocated_milli: int
    capacity_milli: int
    """Of all devices, those that failed too."""
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
    """`milli` of one device held by a job over a while. `end` None: beyond the end of the run.

    `charged`: milli-GPU that it counts, in quotas and in costs. `model`: of the device; empty: it
    was in no inventory.
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
    """An attempt that was cut short: what it had done is lost."""

    time: float
    job: JobId
    node: NodeName
    cause: Cause
    milli_time: float
    """Milli-GPU times the run's time unit."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A node (`device` None) or one of its devices out of order. `end` None: beyond the run."""

    node: NodeName
    device: DeviceUuid | None
    start: float
    end: float | None


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Jobs were moved so that another has room; milli-GPU times the run's time unit.

    `lost`: what the moves were taken to cost; `gained`: what the other was foreseen to gain.
    """

    time: float
    job: JobId
    moved: int
    lost: float
    gained: float


@dataclass(frozen=True, slots=True)
class Run:
    """One policy, one seed."""

    policy: str
    seed: int
    parameters: Mapping[str, str | int | float | bool]
    """What the run was asked to do: discipline, load, demand, file names."""
    time_unit: TimeUnit
    nodes: tuple[Node, ...]
    jobs: tuple[JobRecord, ...]
    samples: tuple[Sample, ...]
    occupancy: tuple[Occupancy, ...]
    """Empty where it was not asked for."""
    losses: tuple[Loss, ...]
    outages: tuple[Outage, ...]
    measured_from: float
    """Steady state: jobs that arrived earlier, and samples before, are warm-up."""
    allocated_milli_time: float
    """Milli-GPU in use times the run's time unit, exactly, from measured_from to the end."""
    ended: float
    """The clock at the end of the run."""
    events: int
    seconds_of_wall: float
    consolidations: tuple[Consolidation, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """The run so far, for whoever prints it step by step. Valid until the simulator goes on."""

    time: float
    time_unit: TimeUnit
    policy: str
    cluster: Cluster
    """The engine's own, not to be changed. Holders are `holder_of(job, worker)`."""
    jobs: tuple[JobRecord, ...]
    """Every job that has arrived, in the order of arrival."""
    expected: tuple[Job, ...]
    """Those that have not arrived yet."""
    sample: Sample
