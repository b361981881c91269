# SPDX-License-Identifier: Apache-2.0
"""The figures of one run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gpupack_simulator.job import Size
from gpupack_simulator.output import capacity
from gpupack_simulator.output.series import Steps
from gpupack_simulator.output.waits import Waits, makespan, mean_duration, mean_wait, waits_by_size
from gpupack_simulator.output.waste import Waste, waste
from gpupack_simulator.record import End, Run, TimeUnit

DEMANDS = (100, 130)
"""Percent of capacity requested at which the published experiment reads the allocation."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a run. Percent are of the GPU capacity of all devices.

    Times are in the run's unit. Means over time are over the measured part of the run. Without a
    clock they are the figures at the run's end. None: the run does not have the figure.
    """

    jobs: Mapping[End, int]
    arrived_percent: float | None
    """Capacity that all jobs requested."""
    allocation_percent: float | None
    allocation_percent_at: Mapping[int, float | None]
    """Allocation when the requested capacity reached this percent; None: it never did."""
    fragmentation_percent: float | None
    queue_mean: float | None
    queue_longest: int
    wait_mean: float | None
    """Mean wait of all jobs that request GPUs."""
    waits: Mapping[Size, Waits]
    duration_mean: float | None
    makespan: float | None
    """Time from the first submission to the last end; None while a job runs or waits."""
    waste: Waste
    killed_attempts: int
    events: int
    seconds_of_wall: float


def figures(run: Run) -> Figures:
    """Compute all figures of a run."""
    return Figures(
        jobs=Counter(record.end for record in run.jobs),
        arrived_percent=capacity.arrived(run).last,
        allocation_percent=_allocation(run),
        allocation_percent_at={d: capacity.allocation_at_demand(run, d) for d in DEMANDS},
        fragmentation_percent=_level(run, capacity.fragmentation(run)),
        queue_mean=_level(run, capacity.queue(run)),
        queue_longest=max((sample.queued_jobs for sample in run.samples), default=0),
        wait_mean=mean_wait(run),
        waits=waits_by_size(run),
        duration_mean=mean_duration(run),
        makespan=makespan(run),
        waste=waste(run),
        killed_attempts=len(run.losses),
        events=run.events,
        seconds_of_wall=run.seconds_of_wall,
    )


def _allocation(run: Run) -> float | None:
    """Return the exact mean allocation, independent of the samples."""
    whole = capacity.milli(run.nodes) * (run.ended - run.measured_from)
    if run.time_unit is TimeUnit.ARRIVAL or not whole:
        return _level(run, capacity.allocation(run))
    return 100 * run.allocated_milli_time / whole


def _level(run: Run, steps: Steps) -> float | None:
    if run.time_unit is TimeUnit.ARRIVAL:
        return steps.last
    return steps.mean(run.measured_from, run.ended)
