# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of running jobs that report them to the queue."""

from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count
from math import inf

from gpupack_simulator.engine.job_state import JobState
from gpupack_simulator.job import JobId
from gpupack_simulator.record import End


class ReportedCheckpoints:
    """The next checkpoint of each running job that reports its checkpoints; mutable."""

    def __init__(self) -> None:
        self._next: list[tuple[float, int, int, JobState]] = []
        """Time, a number that breaks ties, the attempt, and the job: a heap."""
        self._numbers = count()

    def start(self, entry: JobState, now: float) -> None:
        """Follow an attempt that starts now, if its job reports checkpoints."""
        job = entry.job
        if job.reports_checkpoints and job.checkpoint < inf:
            first = now + entry.pause + job.checkpoint / entry.pace
            heappush(self._next, (first, next(self._numbers), entry.attempts, entry))

    def until(self, now: float) -> Iterator[tuple[JobId, float]]:
        """Yield the jobs that have saved their work since the last call, and when they last did."""
        while self._next and self._next[0][0] <= now:
            first, number, attempt, entry = self._next[0]
            if entry.attempts != attempt or entry.end is not End.RUNNING:
                heappop(self._next)
                continue
            interval = entry.job.checkpoint / entry.pace
            saved_at = first + (now - first) // interval * interval
            heapreplace(self._next, (saved_at + interval, number, attempt, entry))
            yield entry.job.id, saved_at
