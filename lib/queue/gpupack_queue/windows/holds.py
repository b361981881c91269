# SPDX-License-Identifier: Apache-2.0
"""Holds: the GPUs that are kept for windows now.

What a window needs is its units without what its own jobs have. It is placed again in each session,
before any other job is tried: a reservation is capacity, and its GPUs may change. GPUs of victims
that have not ended are held, too. Windows with larger units are placed first.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.cluster import Cluster
from gpupack_placement.feasibility import worker_slots
from gpupack_placement.request import Gang
from gpupack_queue.charge import ANY, NO_CHARGE, Charge
from gpupack_queue.job import Job, JobId, Places, ReservationId, RunningJob
from gpupack_queue.planning import Planner
from gpupack_queue.quotas.quota_usage import QuotaUsage
from gpupack_queue.running.projected_cluster import adopt_job, release_job
from gpupack_queue.state.queue_state import State
from gpupack_queue.state.session import Session
from gpupack_queue.window import Window

Held = tuple[Job, Places]
"""A holder with its places."""


def in_order(windows: Iterable[Window]) -> list[Window]:
    """Return the windows in the order in which they are placed."""
    return sorted(windows, key=lambda each: (-each.unit_milli, each.declared, each.reservation))


def milli_of(places: Places) -> int:
    """Return the milli-GPU of these places."""
    return sum(grant.milli for place in places for grant in place.devices)


def charge_of(quota: QuotaUsage, window: Window, milli: int) -> Charge:
    """Return what so much of the window counts against quotas."""
    if not quota.tracks_usage or not milli:
        return NO_CHARGE
    models = window.request.models
    return {quota.keys.of(models[0]) if models else ANY: milli}


def used_by_jobs(
    state: State, window: Window, *, at: float = -inf, without: Collection[JobId] = ()
) -> int:
    """Return the milli-GPU that the window's own jobs have, of those that may run at the time.

    `without`: jobs that are left out.
    """
    running = sum(
        milli_of(one.placements)
        for one in state.running.of_tenant(window.tenant)
        if window.admits(one.job) and one.latest_end > at and one.job.id not in without
    )
    return running + sum(
        milli_of(each.placements)
        for each in state.reserved.values()
        if window.admits(each.job) and each.job.id not in state.running
    )


def protected_jobs(state: State, at: float, preemptor: Job | None = None) -> set[JobId]:
    """Return the jobs that are not preempted at the time for windows or for the preemptor.

    They are the jobs of windows that are active then, the oldest first, as far as these reach. A
    preemptor may preempt jobs of its own reservation. If it preempted those of others, their
    window would preempt it in turn.
    """
    found: set[JobId] = set()
    for window in state.windows:
        if not window.is_active(at) or (preemptor is not None and window.admits(preemptor)):
            continue
        left = window.milli
        own = [one for one in state.running.of_tenant(window.tenant) if window.admits(one.job)]
        for one in sorted(own, key=lambda each: (each.started, each.job.id)):
            left -= milli_of(one.placements)
            if left < 0:
                break
            found.add(one.job.id)
    return found


def place_units(
    cluster: Cluster, window: Window, milli: int, plan: Planner
) -> tuple[list[Held], int]:
    """Place as many units as fit in the cluster, an overlay; return them, and what is missing.

    `milli`: what the window needs. A part of a unit is placed on one node. Of a GPU that the
    window's jobs share with one another nothing is held.
    """
    whole, part = divmod(milli, window.unit_milli)
    found: list[Held] = []
    requests = [(window.request, whole)]
    if part >= WHOLE_GPU:
        requests.append((replace(window.request, gpus=part // WHOLE_GPU), 1))
    missing = 0
    for request, units in requests:
        holder = window.holder(request, units) if units else None
        places = _most(cluster, holder, plan) if holder is not None else ()
        missing += (units - len(places)) * request.milli
        if holder is not None and places:
            held = replace(holder, gang=Gang.of(len(places), request))
            adopt_job(cluster, held, places)
            found.append((held, places))
    return found, missing


def _most(cluster: Cluster, holder: Job, plan: Planner) -> Places:
    """Return places of as many units as fit."""
    request = holder.gang.requests[0]
    units = min(holder.gang.workers, int(worker_slots(cluster, request).sum()))
    while units > 0:
        places = plan(cluster, replace(holder, gang=Gang.of(units, request)))
        if places is not None:
            return places
        units //= 2
    return ()


class WindowHolds:
    """The holds of one session; mutable."""

    def __init__(self, state: State, session: Session, plan: Planner, now: float) -> None:
        self._state, self._session, self._plan = state, session, plan
        self.active = in_order(each for each in state.windows if each.is_active(now))
        self._held: dict[ReservationId, list[Held]] = {}
        self._starting: dict[ReservationId, int] = {}
        """The milli-GPU of jobs that start in this session."""
        self._leaving = state.victims_for_windows()
        """The jobs whose end is expected."""
        self.missing: dict[ReservationId, int] = {}
        """The milli-GPU that are not there, not even once all victims have ended."""

    def place_all(self) -> None:
        """Hold GPUs for all active windows."""
        for window in self.active:
            self._place(window)

    def record_victims(self, victims: Iterable[RunningJob]) -> None:
        """Record that these jobs end for windows; hold what they have, too."""
        self._leaving += victims
        for window in self.active:
            self.release(window)
        self.place_all()

    def window_of(self, job: Job) -> Window | None:
        """Return the active window whose GPUs the job may use; None: there is none."""
        if job.reservation is None:
            return None
        return next((each for each in self.active if each.admits(job)), None)

    def remaining(self, window: Window) -> int:
        """Return the milli-GPU that the window's own jobs do not have."""
        used = used_by_jobs(self._state, window) + self._starting.get(window.reservation, 0)
        return max(window.milli - used, 0)

    def permits(self, job: Job, places: Places, victims: Sequence[RunningJob]) -> bool:
        """Tell whether windows get their GPUs back if jobs of theirs are among the victims.

        `job`: the preemptor, which takes these places.
        """
        affected = [
            each
            for each in self.active
            if not each.admits(job) and any(each.admits(one.job) for one in victims)
        ]
        if not affected:
            return True
        trial, ended = self._session.cluster.overlay(), {one.job.id for one in victims}
        for placement in (placement for one in victims for placement in one.placements):
            trial.assume_free(placement)
        adopt_job(trial, job, places)
        for window in affected:
            for held in self._held.get(window.reservation, ()):
                release_job(trial, *held)
            used = used_by_jobs(self._state, window, without=ended)
            missing = place_units(trial, window, max(window.milli - used, 0), self._plan)[1]
            if missing > self.missing.get(window.reservation, 0):
                return False
        return True

    def release(self, window: Window) -> None:
        """Release what is held for the window, until `hold`."""
        for job, places in self._held.pop(window.reservation, ()):
            self._session.release(job, places)

    def hold(self, window: Window, starting: Places = ()) -> None:
        """Hold GPUs for the window again, after a job of it started on these places, if any."""
        name = window.reservation
        if starting:
            self._starting[name] = self._starting.get(name, 0) + milli_of(starting)
        self._place(window)

    @contextmanager
    def released_for(self, job: Job) -> Iterator[None]:
        """Release what the job may use of its active window, in session and quota usage."""
        window = self.window_of(job)
        if window is None:
            yield
            return
        tenant, charge = self._state.window_charges.get(
            window.reservation, (window.tenant, NO_CHARGE)
        )
        self.release(window)
        self._state.quota.usage.add(tenant, charge, sign=-1)
        try:
            yield
        finally:
            self._state.quota.usage.add(tenant, charge)
            self.hold(window)

    def held(self, window: Window) -> Sequence[Held]:
        """Return what is held for the window."""
        return self._held.get(window.reservation, ())

    def all_held(self) -> list[Held]:
        """Return what is held for all windows."""
        return [each for held in self._held.values() for each in held]

    def _place(self, window: Window) -> None:
        """Place what the window needs: on free GPUs first, then on those of its victims."""
        needed = self.remaining(window)
        cluster = self._session.cluster.overlay()
        found, missing = place_units(cluster, window, needed, self._plan)
        if missing and self._leaving:
            emptied = self._session.cluster.overlay()
            for one in self._leaving:
                for placement in one.placements:
                    emptied.assume_free(placement)
            found, missing = place_units(emptied, window, needed, self._plan)
        for job, places in found:
            self._session.hold(job, places)
        self._held[window.reservation] = found
        self.missing[window.reservation] = missing
