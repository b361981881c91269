# SPDX-License-Identifier: Apache-2.0
"""Gangs that grow: beside its workers, which run together or not at all, one has `extra` more.

    gang starts ─► its extra workers, each a job of one worker ─► let in after all others who wait
    somebody waits who could use their places ─► they are stopped, at no loss, before any gang is

An extra worker is let in beside its gang when that starts, and later whenever the gang has neither
begun, grown nor shrunk for `Rules.grow_after`. It takes nothing that anybody else who waits could
have. Its end frees its place, and its gang's end ends it; both are its owner's to tell.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from gpupack_core.cluster import Cluster
from gpupack_core.queueing.job import Job, JobId
from gpupack_core.queueing.waiting import Entry, Waiting
from gpupack_core.request import Gang

_NOBODY: Final[frozenset[JobId]] = frozenset()


def extra_of(job: Job, number: int) -> Job:
    """One of the extra workers of an elastic gang; numbers are from 1 to `job.extra`."""
    return replace(
        job,
        id=JobId(f"{job.id}+{number}"),
        gang=Gang(1, job.gang.request),
        duration=None,
        estimate=None,
        preemptible=True,
        preempts=False,
        movable=False,
        extra=0,
        extends=job.id,
    )


@dataclass(slots=True)
class _Width:
    """Of a gang that runs; `since`: when it began, grew or shrank last."""

    job: Job
    since: float


@dataclass(slots=True, eq=False)
class Growing:
    """The gangs of one lane that may grow in this cycle; of the first the next extra worker."""

    entries: Sequence[Entry]
    _elastic: "Elastic"
    _at: int = 0
    _numbers: Iterator[int] = field(init=False)
    entry: Entry = field(init=False)
    """To be tried."""

    def __post_init__(self) -> None:
        self._numbers = self._free()
        self.advance()

    def advance(self) -> bool:
        """To the next extra worker; False: there is none."""
        while self._at < len(self.entries):
            of = self.entries[self._at]
            number = next(self._numbers, None)
            if number is not None:
                extra = replace(of.job, id=JobId(f"{of.job.id}+{number}"))
                self.entry = Entry(extra, of.rank, of.lane, of.since)
                return True
            self._at += 1
            self._numbers = self._free()
        return False

    def _free(self) -> Iterator[int]:
        if self._at == len(self.entries):
            return iter(())
        gang = self.entries[self._at].job
        taken = self._elastic.extras_of(gang.id)
        numbers = range(1, gang.extra + 1)
        left = gang.extra - len(taken)
        free = (number for number in numbers if JobId(f"{gang.id}+{number}") not in taken)
        return (number for number, _ in zip(free, range(left), strict=False))


class Elastic:
    """The elastic gangs that run, and the extra workers that do. Mutable."""

    def __init__(self, *, by_priority: bool = True) -> None:
        self._by_priority = by_priority
        self._widths: dict[JobId, _Width] = {}
        self._extras: dict[JobId, set[JobId]] = {}
        self._growing = Waiting(by_priority=by_priority)
        """One entry per gang that is not at its full width; by the gang's id."""

    def copy(self) -> "Elastic":
        """The same, independent of these."""
        twin = Elastic(by_priority=self._by_priority)
        twin._widths = {gang: replace(width) for gang, width in self._widths.items()}
        twin._extras = {gang: extras.copy() for gang, extras in self._extras.items()}
        twin._growing = self._growing.copy()
        return twin

    def __bool__(self) -> bool:
        """Whether some gang that runs is not at its full width."""
        return len(self._growing) > 0

    def extras_of(self, gang: JobId) -> AbstractSet[JobId]:
        """Those that run."""
        return self._extras.get(gang, _NOBODY)

    def starts(self, job: Job, now: float) -> None:
        """A job runs since `now`; of no effect where it is neither elastic nor an extra worker."""
        if job.extends is not None:
            self._extras.setdefault(job.extends, set()).add(job.id)
            self._resized(job.extends, now)
        elif job.extra:
            self._widths[job.id] = _Width(job, now)
            self._list(job.id, now)

    def ends(self, job: Job, now: float) -> None:
        """It runs no longer."""
        if job.extends is not None:
            extras = self._extras[job.extends]
            extras.discard(job.id)
            if not extras:
                del self._extras[job.extends]
            self._resized(job.extends, now)
        elif self._widths.pop(job.id, None) is not None:
            self._growing.remove(job.id)

    def _resized(self, gang: JobId, now: float) -> None:
        width = self._widths.get(gang)
        if width is not None:
            width.since = max(width.since, now)
            self._list(gang, now)

    def _list(self, gang: JobId, now: float) -> None:
        job = self._widths[gang].job
        if len(self.extras_of(gang)) >= job.extra:
            self._growing.remove(gang)
        elif gang not in self._growing:
            self._growing.add(_wanted(job), now)

    def may_grow(
        self,
        waiting: Waiting,
        cluster: Cluster,
        *,
        leaving: Collection[JobId],
        calm_since: float,
    ) -> tuple[list[Growing], float]:
        """By lane those who may grow now, where a worker might fit; and since when others are calm.

        Args:
            waiting: knows what was given back.
            cluster: on which workers might fit.
            leaving: gangs that are being stopped or shrunk.
            calm_since: who was resized later may not grow yet.

        Returns:
            the earliest time at which one of those who may not grow yet was resized; or infinity.
        """
        found, since = [], inf
        for lane in self._growing.lanes():
            if not waiting.may_fit(lane.shape, cluster):
                continue
            ready = []
            for entry in lane.entries:
                resized = self._widths[entry.job.id].since
                if resized > calm_since:
                    since = min(since, resized)
                elif entry.job.id not in leaving:
                    ready.append(entry)
            if ready:
                found.append(Growing(ready, self))
        return found, since

    def beside(self, starting: Iterable[Job], now: float) -> list[Growing]:
        """The extra workers of gangs that start in this cycle."""
        fresh = Waiting(by_priority=self._by_priority)
        for job in starting:
            if len(self.extras_of(job.id)) < job.extra:
                fresh.add(_wanted(job), now)
        return [Growing(lane.entries, self) for lane in fresh.lanes()]


def _wanted(job: Job) -> Job:
    """Stands for any of its extra workers, by the id of the gang and with their number."""
    return replace(extra_of(job, 0), id=job.id, extra=job.extra)
