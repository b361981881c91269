# SPDX-License-Identifier: Apache-2.0
"""Waits and slowdown by size of the job.

Jobs count if they were submitted in the measured part of the run and not dropped. A job that still
waits counts with its wait so far: without it, a policy under which large jobs never start would
look better.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gpupack_placement import FloatArray
from gpupack_simulator.job import Size
from gpupack_simulator.record import End, JobRecord, Run


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of some jobs. Times are in the run's unit; None: no such job."""

    jobs: int
    still_waiting: int
    mean: float | None
    median: float | None
    p90: float | None
    p99: float | None
    longest: float | None
    slowdown_median: float | None
    """(end - submission) / duration of a job that succeeded; 1: it never waited."""
    slowdown_p90: float | None
    slowdown_overall: float | None
    """Total time of these jobs from submission to end, divided by their total duration. The mean of
    the single slowdowns was rejected: it depends on the few shortest jobs."""


def waits_by_size(run: Run) -> dict[Size, Waits]:
    """Return the waits by size, smallest first, for sizes that occur."""
    return {size: waits_of(of_size) for size, of_size in _by_size(run).items()}


def wait_times(run: Run) -> dict[Size, FloatArray]:
    """Return the single waits by size, in ascending order."""
    found = {size: _sorted_waits(of_size) for size, of_size in _by_size(run).items()}
    return {size: waits for size, waits in found.items() if len(waits)}


def mean_wait(run: Run) -> float | None:
    """Return the mean wait of all jobs that request GPUs."""
    waits = _sorted_waits(r for r in measured(run) if r.job.size is not Size.NONE)
    return float(waits.mean()) if len(waits) else None


def mean_duration(run: Run) -> float | None:
    """Return the mean duration of all jobs with an end; None: there are none."""
    durations = np.array([record.job.duration for record in run.jobs])
    finite = durations[np.isfinite(durations)]
    return float(finite.mean()) if len(finite) else None


def makespan(run: Run) -> float | None:
    """Return the time from the first submission to the last end; None while a job runs or waits."""
    if not run.jobs or any(record.end in {End.RUNNING, End.WAITING} for record in run.jobs):
        return None
    ends = [record.ended for record in run.jobs if record.ended is not None]
    return max(ends, default=run.ended) - min(record.submitted for record in run.jobs)


def measured(run: Run) -> list[JobRecord]:
    """Return the jobs that count."""
    return [
        record
        for record in run.jobs
        if record.wait is not None and record.submitted >= run.measured_from
    ]


def _by_size(run: Run) -> dict[Size, list[JobRecord]]:
    """Return the jobs that count by size, smallest first, for sizes that occur."""
    found: dict[Size, list[JobRecord]] = {size: [] for size in Size}
    for record in measured(run):
        found[record.job.size].append(record)
    return {size: of_size for size, of_size in found.items() if of_size}


def _sorted_waits(records: Iterable[JobRecord]) -> FloatArray:
    return np.sort([record.wait for record in records if record.wait is not None]).astype(float)


def waits_of(records: list[JobRecord]) -> Waits:
    """Return the waits of jobs that count."""
    waits = _sorted_waits(records)
    spent, durations = _spent(records)
    slowdowns = spent / durations
    return Waits(
        jobs=len(waits),
        still_waiting=sum(record.end is End.WAITING for record in records),
        mean=float(waits.mean()) if len(waits) else None,
        median=_percentile(waits, 50),
        p90=_percentile(waits, 90),
        p99=_percentile(waits, 99),
        longest=_percentile(waits, 100),
        slowdown_median=_percentile(slowdowns, 50),
        slowdown_p90=_percentile(slowdowns, 90),
        slowdown_overall=float(spent.sum() / durations.sum()) if len(spent) else None,
    )


def _spent(records: list[JobRecord]) -> tuple[FloatArray, FloatArray]:
    """Return the time from submission to end, and the duration, of jobs that succeeded."""
    done = [
        (record.ended - record.submitted, record.job.duration)
        for record in records
        if record.end is End.SUCCEEDED and record.ended is not None
    ]
    pairs = np.array(done, float).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _percentile(values: FloatArray, percent: float) -> float | None:
    return float(np.percentile(values, percent)) if len(values) else None
