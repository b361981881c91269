# SPDX-License-Identifier: Apache-2.0
"""Backfill before windows: whether a job may start although a window begins while it may run.

    it surely ends by the start ─► it may
    it is preemptible, and there is time for its grace period before the start ─► it may
    the window's GPUs are there at its start, with the job where it is ─► it may

Otherwise it waits, or gets other places.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Final

from gpupack_placement.cluster import Cluster
from gpupack_queue.job import Job, JobId, Places, RunningJob, longest_grace
from gpupack_queue.planning import Planner
from gpupack_queue.running.projected_cluster import adopt_job
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.session import Session
from gpupack_queue.window import Window
from gpupack_queue.windows.holds import (
    in_order,
    milli_of,
    place_units,
    protected_jobs,
    used_by_jobs,
)

MAX_LEAD_SECONDS: Final = 3600.0
"""The maximum time before a window at which victims are preempted for it."""


def lead_seconds(state: State, window: Window, now: float) -> float:
    """Return how long before the window its victims are preempted: the longest grace period.

    It is 0 while the window is further away than any grace period that counts.
    """
    if window.start - now > MAX_LEAD_SECONDS:
        return 0.0
    return min(longest_grace(one for one in state.running if one.job.preemptible), MAX_LEAD_SECONDS)


def cluster_at(
    state: State,
    snapshot: Cluster,
    at: float,
    leaving: Collection[JobId],
    unreserved: Collection[JobId] = (),
) -> Cluster:
    """Return the cluster at that time, without anything that is held for windows.

    Jobs that end by then are removed, and `leaving`. `unreserved`: jobs whose reserved places are
    left out.
    """
    cluster = snapshot.overlay()
    for one in state.running:
        if one.latest_end <= at or one.job.id in leaving:
            for placement in one.placements:
                cluster.assume_free(placement)
    for each in state.reserved.values():
        if each.job.id not in unreserved:
            adopt_job(cluster, each.job, each.placements)
    return cluster


def jobs_on_notice(state: State, window: Window, at: float) -> set[JobId]:
    """Return the jobs that can be preempted for the window by then since they started on notice."""
    protected = protected_jobs(state, at)
    return {
        one.job.id for one in state.running if is_on_notice(one.job, one.started, window, protected)
    }


def is_on_notice(job: Job, started: float, window: Window, protected: Collection[JobId]) -> bool:
    """Tell whether the job can be preempted for the window since it started on notice.

    `protected`: jobs that are not preempted for this window.
    """
    if job.extends is not None:
        return True
    return job.preemptible and started >= window.declared and job.id not in protected


@dataclass(slots=True)
class _Then:
    clusters: list[Cluster]
    """The cluster without jobs on notice; once it is too late for others, also with them."""
    leaving: list[set[JobId]]
    """The jobs that each of these clusters is without; it lacks those that end by then, too."""
    windows: list[Window]
    missing: tuple[int, ...]
    """What windows lack then in each cluster: with their own jobs that run now, and without."""


@dataclass(frozen=True, slots=True)
class _Start:
    """A job that starts in this session, or once its victims have ended."""

    job: Job
    places: Places
    at: float

    @property
    def latest_end(self) -> float:
        return self.job.latest_end(self.at)


_Own = tuple[Window, list[Places]]
"""A window, with the places of its own jobs that start now."""


class UpcomingWindows:
    """The windows that have not begun, in one session; mutable."""

    def __init__(self, state: State, session: Session, plan: Planner, now: float) -> None:
        self._state, self._session, self._plan, self._now = state, session, plan, now
        self._windows = sorted(
            (each for each in state.windows if each.start > now), key=lambda each: each.start
        )
        self._staying: list[_Start] = []
        """The jobs that start in this session, or for which others end."""
        self._victims: list[RunningJob] = []
        self._then: dict[tuple[Window, JobId | None], _Then] = {}

    def __bool__(self) -> bool:
        return bool(self._windows)

    @cached_property
    def leads(self) -> dict[Window, float]:
        """Return by window how long before it victims are preempted."""
        return {each: lead_seconds(self._state, each, self._now) for each in self._windows}

    def due_at(self) -> float:
        """Return the next time at which what may start, or has to end, changes."""
        if not self._windows:
            return inf
        graces = (each.job.grace_seconds for each in self._staying if each.job.preemptible)
        starting = min(max(graces, default=0.0), MAX_LEAD_SECONDS)
        times = (
            at
            for each, lead in self.leads.items()
            for at in (each.start - MAX_LEAD_SECONDS, each.start - max(lead, starting), each.start)
            if at > self._now
        )
        return min(times, default=inf)

    def ignores(self, job: Job) -> bool:
        """Tell whether the job may start anywhere, as far as upcoming windows matter."""
        return not any(self._stands_in(job, each, self._now) for each in self._windows)

    def permits(self, job: Job, places: Places, without: Sequence[RunningJob] = ()) -> bool:
        """Tell whether the job delays no window there.

        `without`: jobs that end for it; it starts once their grace periods are over.
        """
        start = self._start_after(job, places, without)
        return all(
            self._has_capacity(start, each, without)
            for each in self._windows
            if self._stands_in(job, each, start.at)
        )

    def places_outside(self, job: Job) -> Places | None:
        """Return places outside what windows need at their starts; None: there are none."""
        cluster = self._session.cluster.overlay()
        for window in self._windows:
            if self._stands_in(job, window, self._now):
                then = self._at(window, job)
                trial = then.clusters[-1].overlay()
                for each in then.windows:
                    needed = max(each.milli - used_by_jobs(self._state, each, at=window.start), 0)
                    for _, places in place_units(trial, each, needed, self._plan)[0]:
                        for placement in places:
                            cluster.assume_held(placement)
        found = self._plan(cluster, job)
        return found if found is not None and self.permits(job, found) else None

    def record_start(self, job: Job, places: Places) -> None:
        """Record that a job starts in this session."""
        if self._windows:
            self._staying.append(_Start(job, places, self._now))
            self._then.clear()

    def record_preemption(self, job: Job, places: Places, victims: Sequence[RunningJob]) -> None:
        """Record that a job starts once these have ended, which are preempted in this session."""
        if self._windows:
            self._staying.append(self._start_after(job, places, victims))
            self._victims += victims
            self._then.clear()

    def _start_after(self, job: Job, places: Places, victims: Sequence[RunningJob]) -> _Start:
        return _Start(job, places, self._now + longest_grace(victims))

    def blocking(self, job: Job, places: Places) -> Window | None:
        """Return the first window that the job would delay there; None: there is none."""
        start = _Start(job, places, self._now)
        return next(
            (
                each
                for each in self._windows
                if self._stands_in(job, each, self._now) and not self._has_capacity(start, each)
            ),
            None,
        )

    def _stands_in(self, job: Job, window: Window, at: float) -> bool:
        """Tell whether the job, started then, may still hold its GPUs at the window's start."""
        return not window.admits(job) and not self._leaves(job, window, at)

    def _leaves(self, job: Job, window: Window, at: float) -> bool:
        if job.extends is not None or job.latest_end(at) <= window.start:
            return True
        if any(each.is_active(window.start) and each.admits(job) for each in self._state.windows):
            return False
        lead = max(self.leads[window], job.grace_seconds)
        in_time = lead <= MAX_LEAD_SECONDS and at < window.start - lead
        return job.preemptible and in_time

    def _has_capacity(
        self, start: _Start, window: Window, without: Sequence[RunningJob] = ()
    ) -> bool:
        then = self._at(window, start.job)
        trials = [cluster.overlay() for cluster in then.clusters]
        in_time = self._in_time(without, window)
        for trial, leaving in zip(trials, then.leaving, strict=True):
            for one in in_time:
                if one.job.id not in leaving and one.latest_end > window.start:
                    for placement in one.placements:
                        trial.assume_free(placement)
            adopt_job(trial, start.job, start.places)
        starting = (*self._staying, start)
        ended = {one.job.id for one in in_time}
        found = self._missing(replace(then, clusters=trials), window, starting, ended)
        return all(now <= before for now, before in zip(found, then.missing, strict=True))

    def _in_time(self, victims: Iterable[RunningJob], window: Window) -> list[RunningJob]:
        """Return the victims of this cycle whose grace periods end before the window."""
        return [one for one in victims if self._now + one.job.grace_seconds <= window.start]

    def _at(self, window: Window, job: Job | None = None) -> _Then:
        """Return how it is at the window's start, without what is reserved for the job."""
        is_reserved = job is not None and job.id in self._state.reserved
        key = window, job.id if job is not None and is_reserved else None
        found = self._then.get(key)
        if found is None:
            is_late = self._now >= window.start - self.leads[window]
            unreserved = {each.job.id for each in self._staying}
            if job is not None:
                unreserved.add(job.id)
            ending = self._state.running_victims(by=window.start)
            ending |= {one.job.id for one in self._in_time(self._victims, window)}
            leaving = [ending | jobs_on_notice(self._state, window, window.start)]
            if is_late:
                leaving.append(ending)
            clusters = [
                cluster_at(self._state, self._session.snapshot, window.start, each, unreserved)
                for each in leaving
            ]
            for each in self._staying:
                if not self._leaves(each.job, window, each.at):
                    for cluster in clusters:
                        adopt_job(cluster, each.job, each.places)
            windows = in_order(e for e in self._state.windows if e.is_active(window.start))
            found = self._then[key] = _Then(clusters, leaving, windows, ())
            found.missing = self._missing(found, window, self._staying)
        return found

    def _missing(
        self,
        then: _Then,
        window: Window,
        starting: Sequence[_Start],
        ended: Collection[JobId] = (),
    ) -> tuple[int, ...]:
        """Return the milli-GPU that windows lack then; a job of a window may have ended before.

        `ended`: running jobs that end before.
        """
        staying = [each for each in starting if each.latest_end > window.start]
        own = [
            (each, [one.places for one in staying if each.admits(one.job)]) for each in then.windows
        ]
        return tuple(
            missing
            for cluster in then.clusters
            for missing in (
                self._with_own(cluster, window, own, ended),
                self._without(cluster, window, own, ended),
            )
        )

    def _with_own(
        self, cluster: Cluster, window: Window, own: Sequence[_Own], ended: Collection[JobId]
    ) -> int:
        """Return what windows lack if their own jobs still run."""
        trial, missing = cluster.overlay(), 0
        for each, places in own:
            used = used_by_jobs(self._state, each, at=window.start, without=ended)
            used += sum(map(milli_of, places))
            missing += place_units(trial, each, max(each.milli - used, 0), self._plan)[1]
        return missing

    def _without(
        self, cluster: Cluster, window: Window, own: Sequence[_Own], ended: Collection[JobId]
    ) -> int:
        """Return what windows lack if their own jobs have ended; 0: they have none."""
        freed = [
            places
            for each, starting in own
            for places in (*starting, *self._places_of_jobs(each, window.start, ended))
        ]
        if not freed:
            return 0
        trial = cluster.overlay()
        for placement in (placement for places in freed for placement in places):
            trial.assume_free(placement)
        return sum(place_units(trial, each, each.milli, self._plan)[1] for each, _ in own)

    def _places_of_jobs(self, window: Window, at: float, ended: Collection[JobId]) -> list[Places]:
        """Return the places of the window's own jobs that may run at the time."""
        ending = self._state.running_victims().union(ended)
        return [
            one.placements
            for one in self._state.running.of_tenant(window.tenant)
            if window.admits(one.job) and one.latest_end > at and one.job.id not in ending
        ]

    def missing_at(self, window: Window) -> int:
        """Return the milli-GPU that all windows lack at the start of this one, as things are."""
        return self._at(window).missing[0]
