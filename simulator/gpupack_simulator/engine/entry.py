# SPDX-License-Identifier: Apache-2.0
"""A job from its arrival to its end, and how it fares; becomes a record.JobRecord."""

from dataclasses import dataclass, field
from math import inf

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
    moves: int = 0
    saved: float = 0.0
    """What it need not do again, of its duration."""
    pace: float = 1.0
    """Work in a unit of time, on the GPUs of the last attempt: the slowest sets it."""
    started: float | None = None
    ended: float | None = None
    end: End = End.WAITING
    placements: tuple[Placement, ...] = ()
    reason: str = ""
    course: Course | None = None
    """Of the last attempt of an elastic job."""
    beside: dict[JobId, tuple[Placement, ...]] = field(default_factory=dict)
    """Where its extra workers run."""

    @property
    def pause(self) -> float:
        """For so long the current attempt stands still first."""
        return self.job.restart if self.attempts > 1 else 0.0

    @property
    def left(self) -> float:
        """How long the next attempt takes, or the current one, where no GPU is slow."""
        return self.lasts(1.0)

    def lasts(self, pace: float) -> float:
        """How long the next attempt takes at this pace."""
        return (self.job.duration - self.saved) / pace + (self.job.restart if self.attempts else 0)

    def stops(self, now: float) -> float:
        """It saves what it can; the answer is how long it has worked in vain."""
        if self.started is None:
            return 0.0
        done = max(now - self.started - self.pause, 0.0) * self.pace
        kept = done - done % self.job.checkpoint if self.job.checkpoint < inf else 0.0
        self.saved += kept
        return (done - kept) / self.pace + self.job.restart
