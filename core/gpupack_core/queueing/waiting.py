# SPDX-License-Identifier: Apache-2.0
"""Pending jobs, in lanes: jobs of one tenant with equal requests.

When one job of a shape does not fit, no job of the shape does, and none will until something is
released: placements only take. Even then only the nodes on which something was released can make a
difference. So a shape that failed stays closed until one of those nodes has space for one of its
workers, by a few comparisons of numbers. A long queue then costs what its lanes cost, not what its
jobs cost, and a plan is made only where it has a chance.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter

from gpupack_core.cluster import Cluster
from gpupack_core.errors import AlreadyHeld
from gpupack_core.queueing.job import Job, JobId, Rank, Tenant
from gpupack_core.request import Gang, Request
from gpupack_core.units import WHOLE_GPU

_REMEMBERED = 4096
"""The number of freed rows that are kept.

A shape that failed before those is tried again without a check.
"""

_SHAPES = 512
"""The number of shapes that are kept although no job of them waits.

The next job of a shape that failed need not be tried.
"""


@dataclass(slots=True, eq=False)
class Entry:
    """A pending job; `since`: when it came, or came back."""

    job: Job
    rank: Rank
    lane: "Lane"
    since: float


@dataclass(slots=True, eq=False)
class Shape:
    """A request of a gang, by any tenant."""

    gang: Gang
    seen: int | None = None
    """The number of releases at its last failure; None: it may fit."""
    lanes: int = 0
    delayed: tuple[tuple[object, ...], int] | None = None
    """The reservations that a job would have delayed, and the number of releases then."""


@dataclass(slots=True, eq=False)
class Lane:
    """Entries of one tenant and shape, by rank."""

    tenant: Tenant
    shape: Shape
    entries: list[Entry] = field(default_factory=list)
    shortest: float = inf
    """The shortest known or expected duration of its jobs, in seconds."""
    searched: float | None = None
    """The time of the last search for victims for its first job that found none."""
    consolidated: float | None = None
    """The time of the last search for moves for its first job that found none."""

    @property
    def head(self) -> Entry:
        """Return the first entry of a lane that is not empty."""
        return self.entries[0]

    @property
    def gang(self) -> Gang:
        """Return the gang that each of its jobs requests."""
        return self.shape.gang


@dataclass(frozen=True, slots=True)
class Failures:
    """What cycles remember of pending jobs, with the fields of Shape and of Lane."""

    shapes: Mapping[Gang, tuple[int | None, tuple[tuple[object, ...], int] | None]]
    lanes: Mapping[tuple[Tenant, Gang], tuple[float | None, float | None]]


class Waiting:
    """Pending jobs; mutable, and bounded by the number of pending jobs."""

    def __init__(self, *, by_priority: bool = True) -> None:
        self._by_priority = by_priority
        self._shapes: dict[Gang, Shape] = {}
        self._lanes: dict[tuple[Tenant, Gang], Lane] = {}
        self._entries: dict[JobId, Entry] = {}
        self._freed: deque[int] = deque(maxlen=_REMEMBERED)
        self._frees = 0

    def copy(self) -> "Waiting":
        """Return an independent copy, with what is remembered of failures."""
        twin = Waiting(by_priority=self._by_priority)
        twin._shapes = {gang: copy(shape) for gang, shape in self._shapes.items()}
        for key, lane in self._lanes.items():
            made = twin._lanes[key] = copy(lane)
            made.shape = twin._shapes[lane.gang]
            made.entries = [Entry(e.job, e.rank, made, e.since) for e in lane.entries]
            twin._entries.update((entry.job.id, entry) for entry in made.entries)
        twin._freed, twin._frees = self._freed.copy(), self._frees
        return twin

    def failures(self) -> "Failures":
        """Return what is remembered of failures."""
        return Failures(
            {gang: (shape.seen, shape.delayed) for gang, shape in self._shapes.items()},
            {key: (lane.searched, lane.consolidated) for key, lane in self._lanes.items()},
        )

    def remember(self, failures: "Failures") -> None:
        """Take over what a copy found, as of the releases before it was made."""
        for gang, of_shape in failures.shapes.items():
            if (shape := self._shapes.get(gang)) is not None:
                shape.seen, shape.delayed = of_shape
        for key, of_lane in failures.lanes.items():
            if (lane := self._lanes.get(key)) is not None:
                lane.searched, lane.consolidated = of_lane

    def forget_searches(self) -> None:
        """Forget searches without result, which may find something now."""
        for lane in self._lanes.values():
            lane.searched = lane.consolidated = None

    def searched(self, now: float, *, but: Lane) -> None:
        """Mark searches for victims and moves as done without result, for all lanes but one."""
        for lane in self._lanes.values():
            lane.searched = lane.consolidated = None if lane is but else now

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job: object) -> bool:
        return job in self._entries

    def __iter__(self) -> Iterator[Entry]:
        """Iterate by rank; jobs may come and go during the iteration."""
        return iter(sorted(self._entries.values(), key=attrgetter("rank")))

    def entries(self) -> Iterable[Entry]:
        """Return the entries in no order; they must not change during the iteration."""
        return self._entries.values()

    def get(self, job: JobId) -> Entry | None:
        """Return the entry of a pending job; None: it does not wait."""
        return self._entries.get(job)

    def add(self, job: Job, now: float) -> Entry:
        """Add a job by rank: a job that comes back gets the place of its submission.

        Raises:
            AlreadyHeld: it waits already.
        """
        if job.id in self._entries:
            raise AlreadyHeld(f"job {job.id} waits already")
        lane = self._lane(job)
        rank = Rank(-job.priority * self._by_priority, job.submitted, job.number, job.id)
        entry = self._entries[job.id] = Entry(job, rank, lane, now)
        lane.shortest = min(lane.shortest, job.expected_end(0.0))
        if lane.entries and lane.entries[-1].rank > rank:
            insort(lane.entries, entry, key=attrgetter("rank"))
        else:
            lane.entries.append(entry)
        return entry

    def remove(self, job: JobId) -> None:
        """Remove a job that was admitted or withdrawn; no effect if it does not wait."""
        entry = self._entries.pop(job, None)
        if entry is None:
            return
        lane = entry.lane
        del lane.entries[bisect_left(lane.entries, entry.rank, key=attrgetter("rank"))]
        if not lane.entries:
            del self._lanes[lane.tenant, lane.gang]
            lane.shape.lanes -= 1

    def lanes(self) -> list[Lane]:
        """Return the lanes, which are not empty, in no particular order."""
        return list(self._lanes.values())

    def freed(self, row: int) -> None:
        """Record that something was released, repaired or added on the node in this row."""
        self._freed.append(row)
        self._frees += 1

    def failed(self, shape: Shape) -> None:
        """Record that the shape does not fit now."""
        shape.seen = self._frees

    def may_fit(self, shape: Shape, cluster: Cluster) -> bool:
        """Tell whether the shape may fit; False: a plan is known to fail."""
        if shape.seen is None:
            return True
        if self.has_news(shape, since=shape.seen, cluster=cluster):
            shape.seen = None
            return True
        shape.seen = self._frees
        return False

    @property
    def frees(self) -> int:
        """Return the number of releases so far."""
        return self._frees

    def has_news(self, shape: Shape, *, since: int, cluster: Cluster) -> bool:
        """Tell whether a release since then was on a node where a worker may fit."""
        news = self._frees - since
        if not news:
            return False
        if news > _REMEMBERED:
            return True
        return any(may_fit_on_row(cluster, shape.gang.request, row) for row in self._last(news))

    def _lane(self, job: Job) -> Lane:
        lane = self._lanes.get((job.tenant, job.gang))
        if lane is None:
            shape = self._shapes.get(job.gang)
            if shape is None:
                if len(self._shapes) >= _SHAPES + len(self._lanes):
                    self._shapes = {of: kept for of, kept in self._shapes.items() if kept.lanes}
                shape = self._shapes[job.gang] = Shape(job.gang)
            shape.lanes += 1
            lane = self._lanes[job.tenant, job.gang] = Lane(job.tenant, shape)
        return lane

    def _last(self, count: int) -> Iterable[int]:
        freed = self._freed
        return {freed[index] for index in range(len(freed) - count, len(freed))}


def may_fit_on_row(cluster: Cluster, request: Request, row: int) -> bool:
    """Tell whether one worker may fit on the row; necessary, not sufficient."""
    a = cluster.arrays
    if row >= len(a.free_cpu) or a.free_cpu[row] < request.cpu or a.free_ram[row] < request.memory:
        return False
    if request.share is not None:
        return bool(a.free_milli[row].max(initial=0) >= request.share.milli)
    return not request.gpus or bool(a.free_gpu_milli[row] >= request.gpus * WHOLE_GPU)
