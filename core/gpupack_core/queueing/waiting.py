# SPDX-License-Identifier: Apache-2.0
"""Those who wait, by lanes of jobs that ask for the same in the name of the same tenant.

When one job of a shape does not fit, none of the shape does, and none will until something is given
back: placements only take. Even then only the nodes on which something was given back can have
made the difference, so a shape that failed stays closed until one of those nodes has room for one
of its workers by a few comparisons of plain numbers. A long queue then costs what its lanes cost,
not what its jobs cost, and a decision is made only where it has a chance.
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
"""So many freed rows are kept; a shape that failed before those is tried again without a look."""

_SHAPES = 512
"""So many are remembered although nobody waits: the next of one that failed need not be tried."""


@dataclass(slots=True, eq=False)
class Entry:
    """A job that waits; `since`: when it came, or came back."""

    job: Job
    rank: Rank
    lane: "Lane"
    since: float


@dataclass(slots=True, eq=False)
class Shape:
    """What is asked for, by whomever."""

    gang: Gang
    seen: int | None = None
    """How many givings-back it knew when it failed; None: not since it last had a chance."""
    lanes: int = 0
    delayed: tuple[tuple[object, ...], int] | None = None
    """For whom room was kept when a job would have delayed them, and the givings-back by then."""


@dataclass(slots=True, eq=False)
class Lane:
    """Entries of one tenant and shape, by rank."""

    tenant: Tenant
    shape: Shape
    entries: list[Entry] = field(default_factory=list)
    shortest: float = inf
    """Nobody in it is known or expected to run for less; seconds."""
    searched: float | None = None
    """When victims were last sought in vain for its head."""
    consolidated: float | None = None
    """When movable jobs in the way of its head were last sought in vain."""

    @property
    def head(self) -> Entry:
        """The first of a lane that is not empty."""
        return self.entries[0]

    @property
    def gang(self) -> Gang:
        """What each of its jobs asks for."""
        return self.shape.gang


@dataclass(frozen=True, slots=True)
class Failures:
    """What cycles remember of those who wait: as of Shape, and as of Lane."""

    shapes: Mapping[Gang, tuple[int | None, tuple[tuple[object, ...], int] | None]]
    lanes: Mapping[tuple[Tenant, Gang], tuple[float | None, float | None]]


class Waiting:
    """Mutable, and bounded by what waits."""

    def __init__(self, *, by_priority: bool = True) -> None:
        self._by_priority = by_priority
        self._shapes: dict[Gang, Shape] = {}
        self._lanes: dict[tuple[Tenant, Gang], Lane] = {}
        self._entries: dict[JobId, Entry] = {}
        self._freed: deque[int] = deque(maxlen=_REMEMBERED)
        self._frees = 0

    def copy(self) -> "Waiting":
        """The same, independent of these, with what is remembered of failures."""
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
        """What is remembered of failures."""
        return Failures(
            {gang: (shape.seen, shape.delayed) for gang, shape in self._shapes.items()},
            {key: (lane.searched, lane.consolidated) for key, lane in self._lanes.items()},
        )

    def remember(self, failures: "Failures") -> None:
        """What a copy found, of what was given back by the moment when it was made."""
        for gang, of_shape in failures.shapes.items():
            if (shape := self._shapes.get(gang)) is not None:
                shape.seen, shape.delayed = of_shape
        for key, of_lane in failures.lanes.items():
            if (lane := self._lanes.get(key)) is not None:
                lane.searched, lane.consolidated = of_lane

    def forget_searches(self) -> None:
        """Those that found nothing may find something now."""
        for lane in self._lanes.values():
            lane.searched = lane.consolidated = None

    def searched(self, now: float, *, but: Lane) -> None:
        """As if victims, and movable jobs in the way, had been sought in vain for all but one."""
        for lane in self._lanes.values():
            lane.searched = lane.consolidated = None if lane is but else now

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job: object) -> bool:
        return job in self._entries

    def __iter__(self) -> Iterator[Entry]:
        """By rank; jobs may come and go meanwhile."""
        return iter(sorted(self._entries.values(), key=attrgetter("rank")))

    def entries(self) -> Iterable[Entry]:
        """In no order; not to be changed meanwhile."""
        return self._entries.values()

    def get(self, job: JobId) -> Entry | None:
        """Of a job that waits."""
        return self._entries.get(job)

    def add(self, job: Job, now: float) -> Entry:
        """By rank: who comes back gets the place that its submission gave it."""
        if job.id in self._entries:
            raise AlreadyHeld(f"job {job.id} waits already")
        lane = self._lane(job)
        rank = Rank(-job.priority * self._by_priority, job.submitted, job.number, job.id)
        entry = self._entries[job.id] = Entry(job, rank, lane, now)
        lane.shortest = min(lane.shortest, job.is_expected(0.0))
        if lane.entries and lane.entries[-1].rank > rank:
            insort(lane.entries, entry, key=attrgetter("rank"))
        else:
            lane.entries.append(entry)
        return entry

    def remove(self, job: JobId) -> None:
        """It was admitted or withdrawn; of no effect for one that does not wait."""
        entry = self._entries.pop(job, None)
        if entry is None:
            return
        lane = entry.lane
        del lane.entries[bisect_left(lane.entries, entry.rank, key=attrgetter("rank"))]
        if not lane.entries:
            del self._lanes[lane.tenant, lane.gang]
            lane.shape.lanes -= 1

    def lanes(self) -> list[Lane]:
        """Those in which somebody waits, in no order that means anything."""
        return list(self._lanes.values())

    def freed(self, row: int) -> None:
        """Something was given back, repaired or added on the node in this row."""
        self._freed.append(row)
        self._frees += 1

    def failed(self, shape: Shape) -> None:
        """It does not fit now."""
        shape.seen = self._frees

    def may_fit(self, shape: Shape, cluster: Cluster) -> bool:
        """False: it is known that a decision would fail."""
        if shape.seen is None:
            return True
        if self.has_news(shape, since=shape.seen, cluster=cluster):
            shape.seen = None
            return True
        shape.seen = self._frees
        return False

    @property
    def frees(self) -> int:
        """How many givings-back there were."""
        return self._frees

    def has_news(self, shape: Shape, *, since: int, cluster: Cluster) -> bool:
        """Whether something was given back since where a worker could have room."""
        news = self._frees - since
        if not news:
            return False
        if news > _REMEMBERED:
            return True
        return any(has_room(cluster, shape.gang.request, row) for row in self._last(news))

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


def has_room(cluster: Cluster, request: Request, row: int) -> bool:
    """Necessary, not sufficient, for one worker of this request to fit on the row."""
    a = cluster.arrays
    if row >= len(a.free_cpu) or a.free_cpu[row] < request.cpu or a.free_ram[row] < request.memory:
        return False
    if request.share is not None:
        return bool(a.free_milli[row].max(initial=0) >= request.share.milli)
    return not request.gpus or bool(a.free_gpu_milli[row] >= request.gpus * WHOLE_GPU)
