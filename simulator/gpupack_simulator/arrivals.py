# SPDX-License-Identifier: Apache-2.0
"""Denser traces, so that jobs queue: the same jobs, durations and order, with earlier arrivals.

The load that a trace offers to a cluster is the GPU-time that its jobs request until the last one
arrives, if each ran from its arrival on, divided by the GPU-time that exists until then:

    load = Σ GPUs · min(duration, last arrival - arrival) / (GPUs · last arrival)
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from gpupack_simulator.errors import InvalidParameter
from gpupack_simulator.job import Job

_MAX_FACTOR = 1e9
_STEPS = 100


def offered_load(jobs: Sequence[Job], capacity_milli: int) -> float:
    """Return the load that jobs offer; the first must arrive at 0 or later."""
    last = max((job.arrival for job in jobs), default=0.0)
    if not last or not capacity_milli:
        raise InvalidParameter("a load needs GPUs, and jobs that arrive one after the other")
    asked = sum(job.milli * min(job.duration, last - job.arrival) for job in jobs)
    return asked / (capacity_milli * last)


def change_rate(jobs: Sequence[Job], factor: float) -> list[Job]:
    """Return the jobs with arrivals `factor` times as fast."""
    if not 0 < factor < inf:
        raise InvalidParameter(f"arrivals cannot be {factor:g} times as fast")
    return [replace(job, arrival=job.arrival / factor) for job in jobs]


def scale_to_load(jobs: Sequence[Job], load: float, capacity_milli: int) -> tuple[list[Job], float]:
    """Speed up (or slow down) jobs to this load; return them and the factor.

    Raises:
        InvalidParameter: the load is not reached at any speed.
    """
    low, high = 1 / _MAX_FACTOR, _MAX_FACTOR
    least, most = (offered_load(change_rate(jobs, of), capacity_milli) for of in (low, high))
    if not least <= load <= most:
        raise InvalidParameter(
            f"the jobs never offer a load of {load:g}, however fast they come: "
            f"it is from {least:.3g} to {most:.3g}"
        )
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        if offered_load(change_rate(jobs, middle), capacity_milli) < load:
            low = middle
        else:
            high = middle
    return change_rate(jobs, high), high
