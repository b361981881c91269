# SPDX-License-Identifier: Apache-2.0
"""What became of each job, in the words that simulator and cluster share, and how they differ."""

import dataclasses
import heapq
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from gpupack_crds.devices import DeviceShare
from gpupack_simulator import Job, JobId


class Place(NamedTuple):
    """Node and devices, in the order in which they were given."""

    node: str
    devices: tuple[DeviceShare, ...]

    def __str__(self) -> str:
        held = ", ".join(f"{d.uuid} {d.percent} % {d.memory_mib} MiB" for d in self.devices)
        return f"{self.node}: {held}"


Outcomes = dict[JobId, Place | None]
"""None: refused."""


class Decider(Protocol):
    """Whoever places jobs one by one."""

    async def arrive(self, job: Job) -> Place | None:
        """Where it goes; None: it is refused, and gone when this returns."""

    async def depart(self, job: Job) -> None:
        """What it held is free when this returns."""


class Ended(NamedTuple):
    """Compared by time; no two jobs are drawn to end at one time."""

    at: float
    job: JobId


@dataclasses.dataclass
class Played:
    """What a decider did with a trace."""

    outcomes: Outcomes = dataclasses.field(default_factory=dict)
    events: int = 0
    """Arrivals and departures."""


async def play(jobs: Iterable[Job], decider: Decider, expected: Mapping[JobId, Place | None]):
    """Let jobs come and go in the order of time, until all are gone or one went elsewhere."""
    played, running, ends = Played(), {}, []
    for job in sorted(jobs, key=lambda each: each.arrival):
        for ended in _due(ends, job.arrival):
            await decider.depart(running.pop(ended.job))
            played.events += 1
        place = await decider.arrive(job)
        played.events += 1
        played.outcomes[job.id] = place
        if place != expected[job.id]:
            return played
        if place is not None:
            running[job.id] = job
            heapq.heappush(ends, Ended(job.arrival + job.duration, job.id))
    for ended in _due(ends, sys.float_info.max):
        await decider.depart(running.pop(ended.job))
        played.events += 1
    return played


def _due(ends: list[Ended], now: float) -> Iterator[Ended]:
    while ends and ends[0].at <= now:
        yield heapq.heappop(ends)


def difference(
    jobs: Iterable[Job],
    *,
    simulated: Mapping[JobId, Place | None],
    found: Mapping[JobId, Place | None],
) -> str:
    """The first job that went elsewhere, for the reader of a failed test; empty: none did."""
    for number, job in enumerate(sorted(jobs, key=lambda each: each.arrival), start=1):
        if job.id not in found:
            return f"job {number} ({job.id}) was never tried"
        if found[job.id] != simulated[job.id]:
            return (
                f"job {number} ({job.id}), {job.request}\n"
                f"  simulator: {simulated[job.id] or 'refused'}\n"
                f"  cluster:   {found[job.id] or 'refused'}"
            )
    return ""
