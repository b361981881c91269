# SPDX-License-Identifier: Apache-2.0
"""Time-window reservations: their jobs start first, and other jobs end when a window begins."""

from gpupack_queue.cycle.context import CycleContext
from gpupack_queue.decisions import CancelReservation
from gpupack_queue.preemption.window_victims import WindowVictims
from gpupack_queue.start import Now
from gpupack_queue.window import Window, holder_id


class ServeWindows:
    """Admits jobs to the GPUs of their window, and preempts others for windows."""

    def run(self, cycle: CycleContext, /) -> None:
        """Serve active windows, and clear the way for those that begin soon."""
        if not cycle.state.windows:
            return
        for window in cycle.holds.active:
            self._serve(cycle, window)
            cycle.look_again(window.end)
        self._cancel_late(cycle)
        if cycle.restrictions.preempt:
            self._preempt(cycle)

    def _serve(self, cycle: CycleContext, window: Window) -> None:
        """Admit jobs that name the reservation, as far as its GPUs reach, in their order.

        A larger job waits for its turn among all jobs.
        """
        entries = cycle.state.pending.of_reservation(window.reservation)
        for entry in sorted(entries, key=cycle.order.precedence):
            job = entry.job
            if not window.admits(job) or job.id in cycle.state.reserved:
                continue
            if job.tenant in cycle.restrictions.excluded or cycle.is_full():
                return
            milli = job.gang.milli
            if milli > cycle.holds.remaining(window):
                continue
            if isinstance(cycle.try_admit_to(window, entry), Now):
                cycle.served.add(job.id)

    def _cancel_late(self, cycle: CycleContext) -> None:
        """Give up victims that did not end within their grace period and the rules' patience."""
        patience = cycle.rules.preemption.victim_timeout_seconds
        for reservation, preemption in cycle.state.window_preemptions.items():
            late = preemption.since + preemption.grace_seconds + patience
            if cycle.now < late:
                cycle.look_again(late)
                continue
            stuck = tuple(job for job in preemption.victims if job in cycle.state.running)
            cycle.cancelled.append(CancelReservation(holder_id(reservation), stuck))

    def _preempt(self, cycle: CycleContext) -> None:
        """Preempt jobs for windows; nothing else ends them in this cycle."""
        search = WindowVictims(cycle.state, cycle.session.snapshot, cycle.planner, cycle.now)
        for decision, victims in search.plan():
            cycle.for_windows.append(decision)
            for running in victims:
                cycle.count(running.job.tenant, running.charge, -1)
            cycle.reservations.record_move()
            cycle.holds.record_victims(victims)
        cycle.look_again(search.due_at)
        if cycle.for_windows:
            cycle.postpone_preemptions()
