# SPDX-License-Identifier: Apache-2.0
"""All operations that are not over: one place that commits statements and advances operations."""

import itertools

from gpupack_crds.gpujob_status import Preemption
from gpupack_queue import CancelReservation, JobId, Queue, Statement
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.queueing.notices import Notices
from gpupack_scheduler.queueing.operations.consolidations import Consolidations
from gpupack_scheduler.queueing.operations.moves import Moves
from gpupack_scheduler.queueing.operations.operation import Event
from gpupack_scheduler.queueing.operations.preemptions import Preemptions
from gpupack_scheduler.queueing.operations.victims import Victims
from gpupack_scheduler.queueing.pending.pending_requests import PendingRequests
from gpupack_scheduler.queueing.pods.draining import DrainActions


class Ongoing:
    """The preemptions, moves and consolidations of one queue.

    Args:
        ledger: GPUJobs and pods from the watch.
        queue: the queue, which reserves the places.
        waiting: the pending requests.
        notices: what the preemptors must learn.
        draining: the reasons of moves for maintenance.
        hold_seconds: time within which an operation must be written.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: Queue,
        waiting: PendingRequests,
        notices: Notices,
        draining: DrainActions,
        *,
        hold_seconds: float,
    ) -> None:
        self._ledger, self._waiting = ledger, waiting
        self.preemptions = Preemptions(ledger, queue, waiting, notices, hold_seconds=hold_seconds)
        self.moves = Moves(ledger, queue, draining, hold_seconds=hold_seconds)
        self.consolidations = Consolidations(queue, self.preemptions, self.moves)
        self.victims = Victims(ledger, queue, waiting, self.preemptions.operations)

    @property
    def may_decide(self) -> bool:
        """Tell whether more may be decided: the operator has yet to write what was decided."""
        return self.preemptions.operations.may_decide and self.moves.operations.may_decide

    def commit(self, statement: Statement, now: float, *, asking: AttemptKey | None) -> None:
        """Begin all operations of a statement; `asking` is not notified, since it is answered."""
        for preempt in statement.preemptions:
            self.preemptions.decide(preempt, now, asking=asking)
        for move in statement.moves:
            self.moves.decide(move, now)
        for each in statement.consolidations:
            self.consolidations.decide(each, now, asking=asking)

    def advance(self, now: float) -> None:
        """Apply the passage of time, and what the watch has shown of victims."""
        self.preemptions.end_overdue(now)
        self.moves.end_overdue(now)
        self.consolidations.advance(now)
        self.victims.see()

    def cancel(self, given_up: CancelReservation) -> None:
        """Give up the operation of a reservation that the queue cancels."""
        if not self.moves.cancel(given_up):
            self.preemptions.cancel(given_up)

    def preemption_of(self, attempt: AttemptKey) -> Preemption | None:
        """Return the preemption for an attempt, as its status will show it; None: there is none."""
        return self.preemptions.preemption_of(attempt)

    def see_submitted(self, uid: str, now: float) -> None:
        """Let the submitted attempt of a GPUJob take over the places reserved for it."""
        self.moves.submitted(uid)
        self.preemptions.submitted(uid)
        self.see_pending(uid, now)

    def see_pending(self, uid: str, now: float) -> None:
        """Apply the preemption in the status of a pending GPUJob."""
        shown = self._ledger.jobs.shown(uid)
        if self.moves.is_over(uid, shown.preemption if shown else None):
            return
        for job, _ in self._waiting.of_job(uid):
            self.preemptions.see(job, itertools.repeat(shown.tokens if shown else {}), now)

    def see_job(self, uid: str, now: float) -> None:
        """Apply what a GPUJob shows that is not submitted."""
        self.moves.see(uid, now)
        self.preemptions.see_unsubmitted(uid, now)

    def forget(self, job: JobId, event: Event) -> None:
        """Forget the preemption of a job that starts, or no longer waits."""
        self.preemptions.forget(job, event)

    def clear(self) -> None:
        """Forget all operations, because the queue is rebuilt."""
        self.preemptions.clear()
        self.moves.clear()
        self.consolidations.clear()
