# SPDX-License-Identifier: Apache-2.0
"""Running jobs as columns of numbers, so that victims are found without a loop over all jobs.

Jobs of one kind are alike in all that decides whether they may be preempted, except for the time
that they have run. So the preemption policies are evaluated once for each kind, and the rest is
arithmetic over columns.
"""

from collections.abc import Collection, ItemsView, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpupack_devices.units import NodeName
from gpupack_placement.table import Table
from gpupack_queue.charge import ModelKey
from gpupack_queue.job import JobId, RunningJob, Tenant
from gpupack_queue.running.candidates import Candidates, Parts
from gpupack_queue.running.projected_cluster import JobEnds

_INITIAL_LINES = 64


class Kind(NamedTuple):
    """The properties that decide whether a job may be preempted for another one."""

    tenant: Tenant
    charge: tuple[tuple[ModelKey, int], ...]
    priority: int
    preemptible: bool
    is_extra: bool
    """Whether it is an extra worker of an elastic gang."""
    movable: bool


class Loss(NamedTuple):
    """The seconds of GPU time that a preempted job loses.

    They count from the job's last checkpoint or its start, at most `max_work_seconds`.
    `added_seconds` are added to that.
    """

    max_work_seconds: float = inf
    added_seconds: float = 0.0


_ALL: Final = Loss()


class Columns:
    """Columns of numbers; a line that was removed is used again."""

    def __init__(self, **columns: type[np.generic]) -> None:
        self.columns: dict[str, NDArray[Any]] = {
            name: np.zeros(_INITIAL_LINES, dtype)
            for name, dtype in (columns | {"live": np.bool_}).items()
        }
        self._free = list(range(_INITIAL_LINES))[::-1]

    def add(self, **values: float) -> int:
        """Store the values in a free line and return its number."""
        if not self._free:
            self._grow()
        line = self._free.pop()
        for name, value in values.items():
            self.columns[name][line] = value
        self.columns["live"][line] = True
        return line

    def copy(self) -> "Columns":
        """Return an independent copy."""
        twin = Columns()
        twin.columns = {name: column.copy() for name, column in self.columns.items()}
        twin._free = self._free.copy()
        return twin

    def remove(self, line: int) -> None:
        """Mark the line as free."""
        self.columns["live"][line] = False
        self._free.append(line)

    def _grow(self) -> None:
        size = len(self.columns["live"])
        self._free = list(range(size, 2 * size))[::-1]
        for name, column in self.columns.items():
            self.columns[name] = np.concatenate((column, np.zeros_like(column)))


class RunningTable:
    """Columns with one line per running job, and one per job and node; mutable."""

    def __init__(self) -> None:
        self._kinds: Table[Kind] = Table()
        self._nodes: Table[NodeName] = Table()
        self._jobs = Columns(
            kind=np.int32,
            milli=np.int64,
            started=np.float64,
            unsaved=np.float64,
            since=np.float64,
            until=np.float64,
            estimate=np.float64,
            ends=np.bool_,
            loses=np.bool_,
        )
        self._parts = Columns(
            job=np.int32, node=np.int32, milli=np.int64, cpu=np.int64, memory=np.int64
        )
        self._lines_by_job: dict[JobId, tuple[int, list[int]]] = {}
        self._running: dict[int, RunningJob] = {}
        self._kinds_by_tenant: dict[Tenant, dict[int, RunningJob]] = {}
        self._exact_ends: JobEnds | None = None
        """The ends of all jobs as they are, if no time changes them; None: to be computed."""

    def copy(self) -> "RunningTable":
        """Return an independent copy."""
        twin = RunningTable()
        twin._kinds, twin._nodes = self._kinds.copy(), self._nodes.copy()
        twin._jobs, twin._parts = self._jobs.copy(), self._parts.copy()
        twin._lines_by_job, twin._running = self._lines_by_job.copy(), self._running.copy()
        twin._kinds_by_tenant = {
            tenant: kinds.copy() for tenant, kinds in self._kinds_by_tenant.items()
        }
        return twin

    def add(self, running: RunningJob) -> None:
        """Add a job that runs from now on."""
        self._exact_ends = None
        job, charge = running.job, running.charge
        kind = self._kinds.take(
            Kind(
                job.tenant,
                tuple(sorted(charge.items())),
                job.priority,
                job.preemptible,
                job.extends is not None,
                job.movable,
            )
        )
        self._kinds_by_tenant.setdefault(job.tenant, {})[kind] = running
        line = self._jobs.add(
            kind=kind,
            milli=sum(charge.values()),
            started=running.started,
            unsaved=running.unsaved_since,
            since=running.protected_since,
            until=running.latest_end,
            estimate=inf if job.estimate is None else job.estimate,
            ends=job.extends is None and not job.is_endless,
            loses=job.extends is None,
        )
        self._running[line] = running
        here: dict[NodeName, list[int]] = {}
        for placement in running.placements:
            sums = here.setdefault(placement.node, [0, 0, 0])
            sums[0] += sum(grant.milli for grant in placement.devices)
            sums[1] += placement.cpu
            sums[2] += placement.memory
        parts = [
            self._parts.add(
                job=line, node=self._nodes.take(node), milli=milli, cpu=cpu, memory=memory
            )
            for node, (milli, cpu, memory) in here.items()
        ]
        self._lines_by_job[job.id] = line, parts

    def remove(self, job: JobId) -> None:
        """Remove a job that no longer runs."""
        self._exact_ends = None
        line, parts = self._lines_by_job.pop(job)
        self._release_kind(
            int(self._jobs.columns["kind"][line]), self._running.pop(line).job.tenant
        )
        self._jobs.remove(line)
        for part in parts:
            self._nodes.give_back(int(self._parts.columns["node"][part]))
            self._parts.remove(part)

    def _release_kind(self, number: int, tenant: Tenant) -> None:
        """Count one job fewer of the kind; forget the kind with its last job."""
        of_tenant = self._kinds_by_tenant[tenant]
        self._kinds.give_back(number)
        if not self._kinds.uses(number):
            del of_tenant[number]
            if not of_tenant:
                del self._kinds_by_tenant[tenant]

    def kinds(self) -> ItemsView[Tenant, dict[int, RunningJob]]:
        """Return by tenant the numbers of the kinds that run, each with a sample job.

        The sample may have ended since. Only its kind counts.
        """
        return self._kinds_by_tenant.items()

    def candidates(
        self,
        protected: Mapping[int, float],
        now: float,
        without: Collection[JobId] = (),
        *,
        loss: Loss = _ALL,
    ) -> tuple[Candidates, float]:
        """Return the jobs that can be preempted now, and when the next one can be.

        Args:
            protected: by number of each kind that can be preempted, for how many seconds its jobs
                are protected.
            now: in seconds.
            without: jobs that are left out.
            loss: what each job would lose.

        Returns:
            the candidates, and the time at which the next job becomes one; infinity: none does.
        """
        until = self._protected_until(protected, without)
        lines = np.flatnonzero(until <= now)
        later = until[until > now].min(initial=inf)
        return self._candidates_on(lines, now, loss), float(later)

    def unprotected_times(
        self, protected: Mapping[int, float], now: float, without: Collection[JobId] = ()
    ) -> list[float]:
        """Return the later times at which more of these jobs become preemptible, in order."""
        until = self._protected_until(protected, without)
        found: list[float] = np.unique(until[(until > now) & (until < inf)]).tolist()
        return found

    def _protected_until(
        self, protected: Mapping[int, float], without: Collection[JobId]
    ) -> NDArray[np.float64]:
        """Return by line until when a job is protected; infinity: it is never preempted."""
        jobs = self._jobs.columns
        seconds = np.full(max(len(self._kinds.values), 1), inf)
        for number, least in protected.items():
            seconds[number] = least
        until: NDArray[np.float64] = jobs["since"] + seconds[jobs["kind"]]
        until[~jobs["live"]] = inf
        until[[self._lines_by_job[job][0] for job in without if job in self._lines_by_job]] = inf
        return until

    def _candidates_on(self, lines: NDArray[np.intp], now: float, loss: Loss) -> Candidates:
        jobs, parts = self._jobs.columns, self._parts.columns
        milli = jobs["milli"][lines]
        had = np.clip(now - jobs["unsaved"][lines], 0.0, loss.max_work_seconds)
        lost = milli * (had + loss.added_seconds) * jobs["loses"][lines]
        ids = np.array([self._running[line].job.id for line in lines.tolist()], np.str_)
        order = np.lexsort((ids, milli, lost))
        ranks = np.full(len(jobs["live"]), -1)
        ranks[lines[order]] = np.arange(len(lines))
        of = ranks[parts["job"]]
        chosen = np.flatnonzero(parts["live"] & (of >= 0))
        return Candidates(
            [self._running[line] for line in lines[order].tolist()],
            lost[order],
            milli[order],
            jobs["kind"][lines][order],
            Parts(of[chosen], parts["node"][chosen], *_amounts(parts, chosen)),
            self._nodes.values,
        )

    def expected_ends(
        self, now: float, also: Sequence[RunningJob] = (), without: Collection[JobId] = ()
    ) -> JobEnds:
        """Return the ends of running jobs and of the jobs in `also`, as they are expected now.

        A job that has exceeded its estimate is expected to take twice as long, or the next doubling
        that it has not exceeded. Its deadline remains an upper bound.
        """
        if self._exact_ends is not None and not also and not without:
            return self._exact_ends
        for running in also:
            self.add(running)
        left_out = [self._lines_by_job[job][0] for job in without if job in self._lines_by_job]
        lines, end, times, is_estimated = self._lines_by_end(now, left_out)
        parts = self._parts.columns
        end_of = np.full(len(self._jobs.columns["live"]), -1)
        end_of[lines] = end
        chosen = np.flatnonzero(parts["live"] & (end_of[parts["job"]] >= 0))
        job, node = parts["job"][chosen], parts["node"][chosen]
        order = np.lexsort((end_of[job], node))
        milli, cpu, memory = _amounts(parts, chosen[order])
        found = JobEnds(
            times,
            self._running.copy(),
            {job: line for job, (line, _) in self._lines_by_job.items()},
            end_of,
            self._nodes.values.copy(),
            self._nodes.numbers(),
            node[order],
            end_of[job[order]],
            job[order],
            milli,
            cpu,
            memory,
            is_estimated,
        )
        for running in also:
            self.remove(running.job.id)
        if not is_estimated and not also and not without:
            self._exact_ends = found
        return found

    def _lines_by_end(
        self, now: float, left_out: Sequence[int]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64], bool]:
        """Return the lines of jobs, the number of each end, the times, and if any is estimated.

        Jobs of unknown duration come last, one by one, in the order in which they started. Extra
        workers and jobs that run forever are left out.
        """
        jobs = self._jobs.columns
        counted = jobs["live"] & jobs["ends"]
        counted[left_out] = False
        lines = np.flatnonzero(counted)
        expected, is_estimated = self._expected(lines, now)
        unknown = np.isinf(expected)
        names = np.zeros(len(lines), np.int64)
        by_name = sorted(
            np.flatnonzero(unknown).tolist(), key=lambda at: self._running[int(lines[at])].job.id
        )
        names[by_name] = np.arange(len(by_name))
        order = np.lexsort((names, jobs["started"][lines], expected))
        lines, until = lines[order], expected[order]
        is_new = np.append(True, until[1:] != until[:-1])[: len(until)] | np.isinf(until)
        return lines, is_new.cumsum() - 1, until[is_new], is_estimated

    def _expected(self, lines: NDArray[np.intp], now: float) -> tuple[NDArray[np.float64], bool]:
        """Return the expected ends, and whether any job is expected to end before its deadline."""
        jobs = self._jobs.columns
        started, until, estimate = (jobs[name][lines] for name in ("started", "until", "estimate"))
        is_estimated = started + estimate < until
        over = np.flatnonzero(is_estimated & (now - started >= estimate))
        doublings = np.floor(np.log2((now - started[over]) / estimate[over])) + 1
        estimate[over] *= 2.0**doublings
        return np.minimum(until, started + estimate), bool(is_estimated.any())


def _amounts(parts: Mapping[str, NDArray[Any]], chosen: NDArray[np.intp]) -> list[NDArray[Any]]:
    return [parts[name][chosen] for name in ("milli", "cpu", "memory")]
