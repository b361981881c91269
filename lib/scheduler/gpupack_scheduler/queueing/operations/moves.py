# SPDX-License-Identifier: Apache-2.0
"""Moves: first written, with which the attempt ends, then the next attempt starts there.

    decided ─► the operator gets an order ─► written in the job's status, and its attempt ends
            ─► the next attempt is submitted: from here on it is handled like a preemption

A move of a consolidation is ordered once that is in the status of the job that it is for
(consolidations.py).
"""

import dataclasses
import itertools
import math

from gpupack_crds.plan import MoveOrder
from gpupack_crds.times import format_seconds
from gpupack_placement import NodeName
from gpupack_queue import (
    CancelReservation,
    Job,
    JobId,
    Move,
    Preempt,
    PreemptionReason,
    Queue,
    RunningJob,
    Victim,
)
from gpupack_queue.explain.reasons import name_of
from gpupack_scheduler.ledger.jobs import ShownJob
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.placed_job import PlacedPreemption
from gpupack_scheduler.queueing.operations import status
from gpupack_scheduler.queueing.operations.operation import Event, Operation, Operations, Phase
from gpupack_scheduler.queueing.pending.request import job_id
from gpupack_scheduler.queueing.pods.draining import DrainActions
from gpupack_scheduler.queueing.running import holders


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedMove:
    """A move, with the node that the job leaves and the reason for its owner."""

    move: Move
    node: NodeName
    why: str


class Moves:
    """The moves of jobs.

    Args:
        ledger: the GPUJobs from the watch.
        queue: the queue, which reserves the places.
        draining: the reasons of moves for maintenance.
        hold_seconds: time within which a move must be written.

    Attributes:
        operations: the moves that are not over, by the attempt that ends.
    """

    def __init__(
        self, ledger: Ledger, queue: Queue, draining: DrainActions, *, hold_seconds: float
    ) -> None:
        self._ledger, self._queue, self._draining = ledger, queue, draining
        self._hold_seconds = hold_seconds
        self.operations: Operations[PlannedMove] = Operations()
        self._over: dict[str, PlacedPreemption] = {}
        """Preemptions, by UID, that the status still shows and whose places are not reserved."""

    def decide(self, move: Move, now: float) -> None:
        """Reserve the new place; the attempt does not end before the move is written."""
        running = self._queue.state.running.get(move.job)
        if running is not None:
            node, why = self._draining.why(running)
            self._decide(PlannedMove(move, node, why), running, now)
            self.order(move.job, now)

    def defer(self, move: Move, head: Job, preempt: Preempt, now: float) -> None:
        """Reserve the new place; the operator gets no order before `order` is called."""
        running = self._queue.state.running.get(move.job)
        if running is not None:
            needed = {place.node for place in preempt.placements}
            left = (place.node for place in running.placements if place.node in needed)
            node = next(left, running.placements[0].node)
            self._decide(PlannedMove(move, node, name_of(head, to=running.job)), running, now)

    def order(self, job: JobId, now: float) -> None:
        """Have a decided move written, within the time that the operator gets for it."""
        made = self.operations.get(job)
        if made is not None:
            write_by = now + self._hold_seconds
            self.operations.put(job, dataclasses.replace(made, write_by=write_by))

    def withdraw(self, job: JobId) -> None:
        """Withdraw a move that no job needs any more; no effect if it is written."""
        if self.operations.phase(job) is Phase.DECIDED:
            self._release(job, Event.WITHDRAWN)

    def orders(self) -> tuple[MoveOrder, ...]:
        """Return the moves that the operator has yet to write."""
        return tuple(
            _order(job, made)
            for job, made in self.operations.items()
            if made.phase is Phase.DECIDED and made.write_by < math.inf
        )

    def end_overdue(self, now: float) -> None:
        """End moves that should be written by now and are not."""
        for job in self.operations.overdue(now):
            self._release(job, Event.EXPIRED)

    def cancel(self, given_up: CancelReservation) -> bool:
        """Give up a move and return True; False if it is none.

        A job that did not end, or was not submitted again, waits like others.
        """
        if given_up.job not in self.operations:
            return False
        uid = given_up.job.partition("/")[0]
        shown = self._ledger.jobs.shown(uid)
        if shown is not None and shown.preemption is not None:
            self._over[uid] = shown.preemption
        self._release(given_up.job, Event.WITHDRAWN, given_up)
        return True

    def submitted(self, uid: str) -> None:
        """Release the places of a job that was submitted again: its new attempt reserves them."""
        for job in self._of(uid):
            self._release(job, Event.STARTED)

    def see(self, uid: str, now: float) -> None:
        """Apply what a GPUJob shows: a move that is over or was written, also before a restart."""
        shown = self._ledger.jobs.shown(uid)
        if uid in self._over and not self.is_over(uid, shown.preemption if shown else None):
            del self._over[uid]
        written = status.own_move(shown) if shown else None
        for job in self._of(uid):
            self._see(job, shown, written)
        if written is not None and shown is not None and not self._waits_again(shown):
            self._find(shown, written, now)

    def is_over(self, uid: str, written: PlacedPreemption | None) -> bool:
        """Tell whether these places are no longer reserved for the job, or never were."""
        return written is not None and self._over.get(uid) == written

    def clear(self) -> None:
        """Forget all moves, because the queue is rebuilt."""
        self.operations.clear()
        self._over.clear()

    def _of(self, uid: str) -> list[JobId]:
        return [job for job, _ in self.operations.items() if job.partition("/")[0] == uid]

    def _decide(self, planned: PlannedMove, running: RunningJob, now: float) -> None:
        made = Operation.decided(planned, now)
        self.operations.put(planned.move.job, made)
        places, cluster = planned.move.placements, self._ledger.cluster
        self._queue.reserve_for_move(running.job, places, cluster, made.since)

    def _see(self, job: JobId, shown: ShownJob | None, written: PlacedPreemption | None) -> None:
        made = self.operations.get(job)
        if made is None:
            return
        is_current = shown is not None and job == job_id(shown.attempt)
        is_decided = made.phase is Phase.DECIDED
        if is_decided and made.write_by == math.inf:
            if shown is None or not is_current or shown.has_ended:
                self._release(job, Event.WITHDRAWN)
        elif written is not None and is_current:
            if written.since == format_seconds(made.since):
                self.operations.apply(job, Event.SHOWN)
                self.operations.apply(job, Event.VICTIMS_END)
        elif not is_decided or shown is None or not shown.may_wait:
            self._release(job, Event.WITHDRAWN)

    def _waits_again(self, shown: ShownJob) -> bool:
        following = dataclasses.replace(shown.attempt, number=shown.attempt.number + 1)
        return job_id(following) in self._queue.state.pending

    def _find(self, shown: ShownJob, written: PlacedPreemption, now: float) -> None:
        """Reserve the places of a job that was not submitted again since this process started.

        A revision reserves nothing for a victim of a preemption, or for a job that was backfilled
        on an estimate: the queue head waits for these GPUs. Once its pods are gone, the time that a
        job has to be submitted counts from now: while no process led it could not be submitted.
        """
        job, uid, state = job_id(shown.attempt), shown.attempt.job_uid, self._queue.state
        if job in self.operations or self.is_over(uid, written):
            return
        is_revised = {each.reason for each in written.victims} == {PreemptionReason.REVISED}
        if is_revised and (job in state.running_victims() or job in state.speculative):
            self._over[uid] = written
            return
        tokens = itertools.repeat(shown.tokens)
        placed = status.places(written, tokens, shown.needs_of_workers)
        if not placed:
            return
        running, places = state.running.get(job), tuple(each.placement for each in placed)
        found = running.job if running else holders.gang_job(shown.attempt, places, shown, None)
        since = status.decided_at(written, now)
        is_ending = not is_revised and any(self._ledger.claims.pods_of_attempt(shown.attempt))
        self._queue.reserve_for_move(
            found,
            places,
            self._ledger.cluster,
            since if running or is_ending else now,
            in_place=is_revised,
        )
        move = Move(job, places, status.move_reason(written))
        self.operations.put(job, Operation.found(PlannedMove(move, NodeName(""), ""), since))
        self.operations.apply(job, Event.VICTIMS_END)

    def _release(self, job: JobId, event: Event, given_up: CancelReservation | None = None) -> None:
        self.operations.apply(job, event)
        stuck = given_up.stuck if given_up else ()
        self._queue.release(job, self._ledger.cluster, stuck=stuck)


def _order(job: JobId, made: Operation[PlannedMove]) -> MoveOrder:
    planned = made.decision
    victims = (Victim(job, planned.move.reason, 0.0),)
    return MoveOrder(
        attempt=job,
        node=planned.node,
        cause=planned.why,
        until=format_seconds(made.write_by),
        preemption=status.to_status(Preempt(job, victims, planned.move.placements), made.since),
    )
