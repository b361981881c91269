# SPDX-License-Identifier: Apache-2.0
"""A job from its arrival to its end; becomes a record.JobRecord."""

from dataclasses import dataclass, field
from math import inf

import gpupack_queue as q
from gpupack_placement import Placement
from gpupack_simulator.engine.progress import Progress
from gpupack_simulator.job import Job, JobId
from gpupack_simulator.record import End


@dataclass(slots=True, eq=False)
class JobState:
    """The state of a job; mutable. `asked`: the job as the queue knows it."""

    job: Job
    queued_job: q.Job
    waiting_since: float
    """Time of its last entry into the queue."""
    total_wait: float = 0.0
    """Time in earlier stays in the queue."""
    attempts: int = 0
    preemptions: int = 0
    moves: int = 0
    active: float = 0.0
    """Time for which its ended attempts ran."""
    saved: float = 0.0
    """Saved work, in units of its duration."""
    pace: float = 1.0
    """Work per unit of time on the GPUs of the last attempt; the slowest GPU determines it."""
    started: float | None = None
    ended: float | None = None
    end: End = End.WAITING
    placements: tuple[Placement, ...] = ()
    reason: str = ""
    course: Progress | None = None
    """Progress of the last attempt of an elastic job."""
    extra_workers: dict[JobId, tuple[Placement, ...]] = field(default_factory=dict)
    """Placements of its extra workers."""

    @property
    def pause(self) -> float:
        """Pause at the start of the current attempt."""
        return self.job.restart if self.attempts > 1 else 0.0

    @property
    def remaining(self) -> float:
        """Time that the next or current attempt takes if no GPU is slow."""
        return self.attempt_duration(1.0)

    def attempt_duration(self, pace: float) -> float:
        """Return how long the next attempt takes at this pace."""
        return (self.job.duration - self.saved) / pace + (self.job.restart if self.attempts else 0)

    def save_work(self, now: float) -> float:
        """Save work up to the last checkpoint; return the time of lost work."""
        if self.started is None:
            return 0.0
        done = max(now - self.started - self.pause, 0.0) * self.pace
        kept = done - done % self.job.checkpoint if self.job.checkpoint < inf else 0.0
        self.saved += kept
        return (done - kept) / self.pace + self.job.restart
