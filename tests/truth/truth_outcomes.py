# SPDX-License-Identifier: Apache-2.0
"""What became of each job, in the words that simulator and cluster share, and how they differ."""

import dataclasses
import heapq
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

from gpupack_crds.devices import DeviceShare
from gpupack_simulator import Job, JobId


class Assignment(NamedTuple):
    """Node and devices, in the order in which they were given."""

    node: str
    devices: tuple[DeviceShare, ...]

    def __str__(self) -> str:
        held = ", ".join(f"{d.uuid} {d.percent} % {d.memory_mib} MiB" for d in self.devices)
        return f"{self.node}: {held}"


Outcomes = dict[JobId, Assignment | None]
"""None: refused."""


class Decider(Protocol):
    """A component that places jobs."""

    async def arrive(self, jobs: Sequence[Job]) -> Sequence[Assignment | None]:
        """Place the jobs one by one in this order; a refused job (None) is removed."""

    async def depart(self, jobs: Sequence[Job]) -> None:
        """What they held is free when this returns."""


class Ended(NamedTuple):
    """Compared by time and name."""

    at: float
    name: JobId
    job: Job


@dataclasses.dataclass
class Played:
    """What a decider did with a trace."""

    outcomes: Outcomes = dataclasses.field(default_factory=dict)
    events: int = 0
    """Arrivals and departures."""


async def play(jobs: Iterable[Job], decider: Decider, expected: Mapping[JobId, Assignment | None]):
    """Let jobs come and go in the order of time, until all are gone or one went elsewhere."""
    played, ends = Played(), []
    for now, arriving in groupby(sorted(jobs, key=_arrival), key=_arrival):
        await _depart(played, decider, _due(ends, now))
        coming = tuple(arriving)
        places = await decider.arrive(coming)
        played.events += len(coming)
        for job, place in zip(coming, places, strict=True):
            played.outcomes[job.id] = place
            if place is not None:
                heapq.heappush(ends, Ended(now + job.duration, job.id, job))
        if any(played.outcomes[job.id] != expected[job.id] for job in coming):
            return played
    await _depart(played, decider, _due(ends, sys.float_info.max))
    return played


async def _depart(played: Played, decider: Decider, ended: Sequence[Ended]) -> None:
    """Remove all ended jobs at once: without arrivals their order makes no difference."""
    if ended:
        await decider.depart([each.job for each in ended])
        played.events += len(ended)


def _due(ends: list[Ended], now: float) -> list[Ended]:
    due = []
    while ends and ends[0].at <= now:
        due.append(heapq.heappop(ends))
    return due


def _arrival(job: Job) -> float:
    return job.arrival


def difference(
    jobs: Iterable[Job],
    *,
    simulated: Mapping[JobId, Assignment | None],
    found: Mapping[JobId, Assignment | None],
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
