# SPDX-License-Identifier: Apache-2.0
"""The heap of running jobs by their ends: engine/events.py, for ends alone."""

from gpupack_simulator.compiled.loops import compiled
from gpupack_simulator.compiled.tables import Ends


@compiled
def push(ends: Ends, size: int, time: float, number: int, job: int) -> None:
    """Push an end onto a heap of this size."""
    ends.time[size], ends.number[size], ends.job[size] = time, number, job
    at = size
    while at and _before(ends, at, (at - 1) // 2):
        _swap(ends, at, (at - 1) // 2)
        at = (at - 1) // 2


@compiled
def pop(ends: Ends, size: int) -> None:
    """Pop the first end off a heap of this size."""
    last, at = size - 1, 0
    _swap(ends, 0, last)
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < last and _before(ends, child, least):
                least = child
        if least == at:
            return
        _swap(ends, at, least)
        at = least


@compiled
def _before(ends: Ends, one: int, other: int) -> bool:
    if ends.time[one] != ends.time[other]:
        return bool(ends.time[one] < ends.time[other])
    return bool(ends.number[one] < ends.number[other])


@compiled
def _swap(ends: Ends, one: int, other: int) -> None:
    ends.time[one], ends.time[other] = ends.time[other], ends.time[one]
    ends.number[one], ends.number[other] = ends.number[other], ends.number[one]
    ends.job[one], ends.job[other] = ends.job[other], ends.job[one]
