# SPDX-License-Identifier: Apache-2.0
"""Jobs with reserved places start first: preemptors, jobs that move, and restarts in place."""

from gpupack_queue.cycle.context import CycleContext
from gpupack_queue.decisions import CancelReservation
from gpupack_queue.job import Places
from gpupack_queue.reservations.in_place_restart import is_held_by_last_attempt
from gpupack_queue.start import Now
from gpupack_queue.state.reservation import Reservation, is_free


class ServeReservations:
    """Admits jobs with reserved places, or gives the places up."""

    def run(self, cycle: CycleContext, /) -> None:
        """Serve each reservation, then jobs whose victims have ended late."""
        for reservation in tuple(cycle.state.reserved.values()):
            self._serve_reservation(cycle, reservation)
        self._serve_beneficiaries(cycle)

    def _serve_reservation(self, cycle: CycleContext, reservation: Reservation) -> None:
        """Admit a job with reserved places as soon as it fits, on these places or elsewhere.

        A job that restarts on its own places starts only there while the rest of its last attempt
        still holds them. The reservation is given up when the victims do not end, or the job does
        not become pending again, within the victims' grace period and the patience of the rules,
        and when the victims have ended and the job fits nowhere.
        """
        has_victims = bool(cycle.state.victims_of(reservation))
        patience = cycle.rules.preemption.victim_timeout_seconds
        cancelled_at = reservation.since + reservation.grace_seconds + patience
        job, is_pending = reservation.job, reservation.job.id in cycle.state.pending
        if reservation.in_place and has_victims and not is_pending:
            return
        if is_pending and self._serve_pending(cycle, reservation, cancelled_at):
            return
        if (has_victims or not is_pending) and cycle.now >= cancelled_at:
            stuck = tuple(running.job.id for running in cycle.state.victims_of(reservation))
            cycle.cancelled.append(CancelReservation(job.id, stuck))
        elif has_victims or not is_pending:
            cycle.look_again(cancelled_at)

    def _serve_pending(
        self, cycle: CycleContext, reservation: Reservation, cancelled_at: float
    ) -> bool:
        """Admit a pending job with reserved places, if it fits; return whether all is decided.

        It may fit where victims have ended that were to end for it earlier.
        """
        job, has_victims = reservation.job, bool(cycle.state.victims_of(reservation))
        cycle.session.release(job, reservation.placements)
        cycle.count(job.tenant, reservation.charge, -1)
        if is_free(cycle.session.cluster, job, reservation.placements):
            found = cycle.planner.permitted(cycle.session.cluster, job, reservation.placements)
        elif cycle.now < cancelled_at and is_held_by_last_attempt(
            cycle.session.cluster, reservation, cycle.state.running
        ):
            found, has_victims = None, True
            cycle.look_again(cancelled_at)
        else:
            found = cycle.planner.place(cycle.session.cluster, job)
        if found is not None and not self._is_permitted(cycle, reservation, found[0]):
            found = None
        if found is not None and cycle.quota.fits_with_victims(job.tenant, found[1]):
            cycle.admit(job, *found)
            return True
        cycle.count(job.tenant, reservation.charge, 1)
        cycle.session.hold(job, reservation.placements)
        if has_victims:
            return False
        if found is None:
            cycle.cancelled.append(CancelReservation(job.id, ()))
        return True

    def _is_permitted(self, cycle: CycleContext, reservation: Reservation, places: Places) -> bool:
        """Tell whether the job delays no upcoming window there.

        A preemptor may start later than was expected. A job that moves or restarts in place goes
        on with what it did before.
        """
        has_run = reservation.in_place or reservation.job.id in reservation.victims
        return has_run or cycle.upcoming.permits(reservation.job, places)

    def _serve_beneficiaries(self, cycle: CycleContext) -> None:
        """Admit jobs whose victims have ended late, before any other job takes what these had."""
        for job in tuple(cycle.state.beneficiaries):
            entry = cycle.state.pending.get(job)
            if entry is None or job in cycle.state.reserved:
                continue
            if entry.job.tenant in cycle.restrictions.excluded:
                continue
            if isinstance(cycle.try_admit(entry), Now):
                cycle.served.add(job)
