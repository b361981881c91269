# SPDX-License-Identifier: Apache-2.0
"""A job from its arrival to its end, and how it fares; becomes a record.JobRecord."""

from dataclasses import dataclass, field

from gpupack_core import Placement
from gpupack_core import queueing as q
from gpupack_simulator.engine.course import Course
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.record import End


@dataclass(slots=True, eq=False)
class Entry:
    """Mutable. `asked`: as the queue knows it."""

    job: Job
    asked: q.Job
    since: float
    """When it came into the queue, or back."""
    waited: float = 0.0
    """Time in earlier stays in the queue."""
    attempts: int = 0
    preemptions: int = 0
    started: float | None = None
    ended: float | None = None
    end: End = End.WAITING
    placements: tuple[Placement, ...] = ()
    reason: str = ""
    course: Course | None = None
    """Of the last attempt of an elastic job."""
    beside: dict[JobId, tuple[Placement, ...]] = field(default_factory=dict)
    """Where its extra workers run."""
