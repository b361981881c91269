# SPDX-License-Identifier: Apache-2.0
"""Reservations of GPUJobs whose preemption is in the status and that are not submitted yet.

Without them a job that is submitted earlier would get what the victims release. Once the preemptor
is submitted, its reservation is that of any preemption (preempting.py).
"""

import dataclasses

from gpupack_queue import JobId, Preempt, PreemptionReason, Queue, Victim
from gpupack_scheduler.ledger.jobs import ShownJob
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.placed_job import PlacedPreemption
from gpupack_scheduler.queueing import holders, preemptions
from gpupack_scheduler.queueing.pending import PendingRequests
from gpupack_scheduler.queueing.preemptions import PreemptionRecords
from gpupack_scheduler.queueing.request import job_id


class RestoredPreemptions:
    """The preemptions restored from status, by the attempt that is to be submitted.

    Args:
        ledger: the GPUJobs from the watch.
        made: the preemptions in progress.
        waiting: the pending jobs.
    """

    def __init__(self, ledger: Ledger, made: PreemptionRecords, waiting: PendingRequests) -> None:
        self._ledger, self._made, self._waiting = ledger, made, waiting
        self._restored: dict[JobId, PlacedPreemption] = {}
        """Preemptions in the statuses."""

    def see(self, uid: str, queue: Queue, now: float) -> None:
        """Apply the preemption that a GPUJob shows for its next attempt."""
        shown = self._ledger.jobs.shown(uid)
        written = shown.preemption if shown and shown.may_wait else None
        if shown is None or written is None or _is_move(written, uid):
            self.returns(uid, queue)
            return
        attempt = dataclasses.replace(shown.attempt, number=shown.attempt.number + 1)
        job = job_id(attempt)
        if job in self._waiting or job in queue.state.running or self._restored.get(job) == written:
            return
        self.returns(uid, queue)
        self._restore(job, written, shown, queue, now)

    def returns(self, uid: str, queue: Queue) -> None:
        """Release the reservation of a job that is submitted, or no longer needs it.

        A preemption that still holds is restored for the submitted attempt.
        """
        for job in [job for job in self._restored if job.partition("/")[0] == uid]:
            del self._restored[job]
            self._made.forget(job)
            queue.release(job, self._ledger.cluster)

    def give_up(self, job: JobId) -> PlacedPreemption | None:
        """Forget a job that was not submitted in time; return what its status still shows."""
        return self._restored.pop(job, None)

    def clear(self) -> None:
        """Forget all reservations, because the queue is rebuilt."""
        for job in self._restored:
            self._made.forget(job)
        self._restored.clear()

    def _restore(
        self, job: JobId, written: PlacedPreemption, shown: ShownJob, queue: Queue, now: float
    ) -> None:
        """Hold the places with all needs of the job's planned pod."""
        victims, held = preemptions.read(written, job, shown.needs, shown.tokens)
        is_over = self._made.is_over(job, written)
        if is_over or not held or not all(leaves(victim, queue) for victim in victims):
            return
        attempt = dataclasses.replace(shown.attempt, number=shown.attempt.number + 1)
        places = tuple(each.placement for each in held)
        self._restored[job] = written
        self._made.found(Preempt(job, victims, places), now)
        queue.reserve_for_move(
            holders.gang_job(attempt, places, shown, None),
            places,
            self._ledger.cluster,
            now,
            victims=[victim.job for victim in victims],
        )


def is_moved(victim: Victim) -> bool:
    """Tell whether a victim is moved by a consolidation."""
    return victim.reason is PreemptionReason.CONSOLIDATION


def leaves(victim: Victim, queue: Queue) -> bool:
    """Tell whether a victim will leave its GPUs.

    It does not if it was to be moved by a consolidation and its new place was not written before
    this process started.
    """
    if not is_moved(victim) or victim.job not in queue.state.running:
        return True
    return victim.job in queue.state.reserved


def _is_move(written: PlacedPreemption, uid: str) -> bool:
    """Tell whether a preemption is the job's own move: its last attempt is the victim."""
    attempts = (attempt for each in written.victims for attempt in each.attempts)
    return any(attempt.partition("/")[0] == uid for attempt in attempts)
