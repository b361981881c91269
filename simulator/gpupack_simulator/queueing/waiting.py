# SPDX-License-Identifier: Apache-2.0
"""The queue, by lanes of jobs that ask for the same.

When one job of a lane does not fit, none of the lane does, and none will until something is given
back: placements only take. Even then only the nodes on which something was given back can have
made the difference, so a lane that failed stays closed until one of those nodes has room for one
of its workers by a few comparisons of plain numbers. A long queue then costs what its lanes cost,
not what its jobs cost, and a decision is made only where it has a chance.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gpupack_core import WHOLE_GPU, Cluster, Gang, Placement, Request, Spread
from gpupack_simulator.job import Job
from gpupack_simulator.record import End

Rank = tuple[float, ...]

_REMEMBERED = 4096
"""So many freed rows are kept; a lane that failed before those is tried again without a look."""


@dataclass(slots=True, eq=False)
class Entry:
    """A job from its arrival to its end, and how it fares; becomes a record.JobRecord."""

    job: Job
    rank: Rank
    lane: "Lane"
    since: float
    """When it came into the queue, or back."""
    waited: float = 0.0
    """Time in earlier stays in the queue."""
    attempts: int = 0
    started: float | None = None
    ended: float | None = None
    end: End = End.WAITING
    placements: tuple[Placement, ...] = ()
    reason: str = ""


@dataclass(slots=True, eq=False)
class Lane:
    """Entries that ask for the same, by rank."""

    gang: Gang
    never: str = ""
    """Why it fits not even the empty cluster; empty: it does, or nobody asked."""
    entries: deque[Entry] = field(default_factory=deque)
    seen: int | None = None
    """How many givings-back it knew when it failed; None: not since it last had a chance."""

    @property
    def head(self) -> Entry:
        """The first of a lane that is not empty."""
        return self.entries[0]


class Waiting:
    """Mutable; belongs to one engine."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lanes: dict[Gang, Lane] = {}
        self._by_identity: dict[tuple[int, int, Spread], Lane] = {}
        self._kept: list[Request] = []
        """An identity stands for a request only as long as that exists."""
        self._busy: dict[int, Lane] = {}
        self._freed: deque[int] = deque(maxlen=_REMEMBERED)
        self._frees = 0
        self._jobs = 0

    def __len__(self) -> int:
        return self._jobs

    def lane_of(self, job: Job) -> tuple[Lane, bool]:
        """The lane for jobs that ask for the same, and whether it is new.

        Traces repeat a few requests; to know one by its identity is faster than to compare it.
        """
        seen = (id(job.request), job.workers, job.spread)
        lane = self._by_identity.get(seen)
        if lane is not None:
            return lane, False
        gang = job.gang
        lane = self._lanes.get(gang)
        new = lane is None
        if lane is None:
            lane = self._lanes[gang] = Lane(gang)
        self._by_identity[seen] = lane
        self._kept.append(job.request)
        return lane, new

    def add(self, entry: Entry) -> None:
        """By rank: who was killed comes back to the place that its arrival gave it."""
        entries = entry.lane.entries
        if entries and entries[-1].rank > entry.rank:
            insort(entries, entry, key=lambda other: other.rank)
        else:
            entries.append(entry)
        self._busy[id(entry.lane)] = entry.lane
        self._jobs += 1

    def remove(self, entry: Entry) -> None:
        """It was started or dropped."""
        entries = entry.lane.entries
        if entries[0] is entry:
            entries.popleft()
        else:
            entries.remove(entry)
        if not entries:
            del self._busy[id(entry.lane)]
        self._jobs -= 1

    def lanes(self) -> list[Lane]:
        """Those in which somebody waits, in no order that means anything."""
        return list(self._busy.values())

    def head(self) -> Entry | None:
        """Who is first of all."""
        if not self._busy:
            return None
        return min(self._busy.values(), key=lambda lane: lane.head.rank).head

    def __iter__(self) -> Iterator[Entry]:
        """By rank; the queue may be changed meanwhile."""
        entries = [entry for lane in self._busy.values() for entry in lane.entries]
        return iter(sorted(entries, key=lambda entry: entry.rank))

    def hopeful(self) -> list[Entry]:
        """Those of whom it is not known that a decision would fail, by rank."""
        lanes = [lane for lane in self._busy.values() if self.may_fit(lane)]
        entries = [entry for lane in lanes for entry in lane.entries]
        return sorted(entries, key=lambda entry: entry.rank)

    def freed(self, row: int) -> None:
        """Something was given back, repaired or added on the node in this row."""
        self._freed.append(row)
        self._frees += 1

    def failed(self, lane: Lane) -> None:
        """It does not fit now."""
        lane.seen = self._frees

    def may_fit(self, lane: Lane) -> bool:
        """False: it is known that a decision would fail."""
        if lane.seen is None:
            return True
        news = self._frees - lane.seen
        if not news:
            return False
        if news > _REMEMBERED or self._any_room(lane, self._last(news)):
            lane.seen = None
            return True
        lane.seen = self._frees
        return False

    def _any_room(self, lane: Lane, rows: Iterable[int]) -> bool:
        return any(has_room(self._cluster, lane.gang.request, row) for row in rows)

    def _last(self, count: int) -> set[int]:
        freed = self._freed
        return {freed[index] for index in range(len(freed) - count, len(freed))}


def has_room(cluster: Cluster, request: Request, row: int) -> bool:
    """Necessary, not sufficient, for one worker of this request to fit on the row."""
    a = cluster.arrays
    if a.free_cpu[row] < request.cpu or a.free_ram[row] < request.memory:
        return False
    if request.share is not None:
        return bool(a.free_milli[row].max(initial=0) >= request.share.milli)
    return not request.gpus or bool(a.free_gpu_milli[row] >= request.gpus * WHOLE_GPU)
