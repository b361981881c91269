# SPDX-License-Identifier: Apache-2.0
"""The progress of an elastic job: work is done at the speed of its current workers.

    speed(workers) = minWorkers + efficiency · (workers - minWorkers)
    work           = duration · speed(workers requested)

So a job with all its workers from start to end takes its duration. Each change of the width costs a
pause without progress; a change within a pause restarts it.
"""

from dataclasses import dataclass, field

from gpupack_simulator.job import Job


@dataclass(slots=True)
class Progress:
    """The progress of one attempt; mutable. Times are in the run's unit."""

    job: Job
    started: float
    pace: float = 1.0
    """Work of one worker per unit of time."""
    width: int = field(init=False)
    held_gpu_time: float = 0.0
    """Worker-time that the attempt has held."""
    resizes: int = 0
    _left: float = field(init=False)
    _at: float = field(init=False)
    _continues_at: float = field(init=False)
    _resized: float | None = None

    def __post_init__(self) -> None:
        self.width = self.job.least
        self._left = self.job.duration * self._speed(self.job.workers) / self.pace
        self._at = self._continues_at = self.started

    @property
    def ends(self) -> float:
        """End of the attempt if its width does not change again."""
        return max(self._at, self._continues_at) + self._left / self._speed(self.width)

    def resize(self, by: int, now: float) -> None:
        """Change the number of workers; except at the start this costs a pause."""
        self.pass_time(now)
        self.width += by
        if now > self.started:
            self.resizes += now != self._resized
            self._resized, self._continues_at = now, now + self.job.resize_pause

    def pass_time(self, now: float) -> None:
        """Account for the progress until now."""
        self.held_gpu_time += self.width * (now - self._at)
        done = max(now - max(self._at, self._continues_at), 0.0) * self._speed(self.width)
        self._left = max(self._left - done, 0.0)
        self._at = now

    def _speed(self, workers: int) -> float:
        widened = self.job.efficiency * (workers - self.job.least)
        return self.pace * (self.job.least + widened)
