# SPDX-License-Identifier: Apache-2.0
"""Execution of moves: first written, then the attempt ends, then the next one starts there.

    decided ─► the operator is notified ─► written in the job's status, and its attempt ends
                 └ not in time: over     └ read back from there after a restart
            ─► the next attempt is submitted: from here on it is handled like a preemption

A move is in the status as a preemption whose victim is the job itself. Moves of a consolidation are
held back until it is in the status of the job that it is for (consolidating.py).
"""

import dataclasses
import datetime as dt
import math
from typing import Final

from gpupack_crds.plan import MoveOrder
from gpupack_placement import NodeName
from gpupack_queue import (
    CancelReservation,
    Job,
    JobId,
    Move,
    Preempt,
    PreemptionReason,
    Queue,
    Victim,
)
from gpupack_queue.explain.reasons import name_of
from gpupack_scheduler.ledger.jobs import ShownJob
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.placed_job import PlacedPreemption
from gpupack_scheduler.queueing import holders, preemptions
from gpupack_scheduler.queueing.draining import DrainActions
from gpupack_scheduler.queueing.preempting import MAX_UNWRITTEN
from gpupack_scheduler.queueing.request import job_id

_MOVES: Final = {
    PreemptionReason.MAINTENANCE,
    PreemptionReason.CONSOLIDATION,
    PreemptionReason.REVISED,
}


@dataclasses.dataclass(slots=True)
class _Made:
    order: MoveOrder | None
    """The order for the operator; None: the move was found in the status."""
    deadline: float
    """Time by which the move should be written; infinity: it is written."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Deferred:
    move: Move
    node: NodeName
    why: str


class MoveActions:
    """The moves in progress, by the attempt that ends.

    Args:
        ledger: the GPUJobs from the watch.
        draining: the reasons of moves for maintenance.
        hold_seconds: time within which a move must be written.
    """

    def __init__(self, ledger: Ledger, draining: DrainActions, *, hold_seconds: float) -> None:
        self._ledger, self._draining = ledger, draining
        self._hold_seconds = hold_seconds
        self._made: dict[JobId, _Made] = {}
        self._held_back: dict[JobId, _Deferred] = {}
        self._over: dict[str, PlacedPreemption] = {}
        """Preemptions, by UID, that the status still shows and whose places are not reserved."""

    def __contains__(self, job: JobId) -> bool:
        return job in self._made or job in self._held_back

    def may_decide(self) -> bool:
        """Tell whether another move may be decided."""
        unwritten = sum(made.deadline < math.inf for made in self._made.values())
        return unwritten + len(self._held_back) < MAX_UNWRITTEN

    def decided(self, move: Move, queue: Queue, now: float) -> None:
        """Reserve the new place; the attempt does not end before the move is written."""
        running = queue.state.running.get(move.job)
        if running is None:
            return
        node, why = self._draining.why(running)
        queue.reserve_for_move(running.job, move.placements, self._ledger.cluster, now)
        self._orders(move, node, why, now)

    def defer(self, move: Move, head: Job, preempt: Preempt, queue: Queue, now: float) -> None:
        """Reserve the new place; the operator is not notified before `begins`."""
        running = queue.state.running.get(move.job)
        if running is None:
            return
        queue.reserve_for_move(running.job, move.placements, self._ledger.cluster, now)
        needed = {place.node for place in preempt.placements}
        left = (place.node for place in running.placements if place.node in needed)
        node = next(left, running.placements[0].node)
        self._held_back[move.job] = _Deferred(move, node, name_of(head, to=running.job))

    def begins(self, job: JobId, now: float) -> None:
        """Begin a move that was held back: its consolidation has been written."""
        held = self._held_back.pop(job, None)
        if held is not None:
            self._orders(held.move, held.node, held.why, now)

    def cancels(self, job: JobId, queue: Queue) -> None:
        """Cancel a move that no job needs any more; no effect if it is written."""
        made = self._made.get(job)
        if job in self._held_back or (made is not None and made.deadline < math.inf):
            self._release(job, queue)

    def _orders(self, move: Move, node: str, why: str, now: float) -> None:
        victims = (Victim(move.job, move.reason, 0.0),)
        written = preemptions.to_status(Preempt(move.job, victims, move.placements), now)
        until = now + self._hold_seconds
        order = MoveOrder(
            attempt=move.job, node=node, cause=why, until=_moment(until), preemption=written
        )
        self._made[move.job] = _Made(order, until)

    def orders(self) -> tuple[MoveOrder, ...]:
        """Return the moves that the operator has yet to write."""
        unwritten = (made.order for made in self._made.values() if made.deadline < math.inf)
        return tuple(order for order in unwritten if order is not None)

    def end_overdue(self, queue: Queue, now: float) -> None:
        """End moves that should be written by now and are not."""
        for job in [job for job, made in self._made.items() if made.deadline <= now]:
            self._release(job, queue)

    def cancel(self, given_up: CancelReservation, queue: Queue) -> bool:
        """Give up a move and return True; False if it is none.

        A job that did not end, or was not submitted again, waits like others.
        """
        if given_up.job not in self:
            return False
        uid = given_up.job.partition("/")[0]
        shown = self._ledger.jobs.shown(uid)
        if shown is not None and shown.preemption is not None:
            self._over[uid] = shown.preemption
        self._release(given_up.job, queue, given_up)
        return True

    def returns(self, uid: str, queue: Queue) -> None:
        """Release the places of a job that was submitted again: its new attempt reserves them."""
        for job in self._of(uid):
            self._release(job, queue)

    def see(self, uid: str, queue: Queue, now: float) -> None:
        """Apply what a GPUJob shows: a move that is over or was written, also before a restart."""
        shown = self._ledger.jobs.shown(uid)
        if uid in self._over and not self.is_over(uid, shown.preemption if shown else None):
            del self._over[uid]
        written = _own_move(shown) if shown else None
        for job in self._of(uid):
            made = self._made.get(job)
            if made is None:
                if shown is None or job != job_id(shown.attempt) or shown.has_ended:
                    self._release(job, queue)
            elif written is not None and shown is not None and job == job_id(shown.attempt):
                if made.order is None or written.since == made.order.preemption.since:
                    made.deadline = math.inf
            elif made.deadline == math.inf or shown is None or not shown.may_wait:
                self._release(job, queue)
        if written is not None and shown is not None and not self._waits_again(shown, queue):
            self._find(shown, written, queue, now)

    def is_over(self, uid: str, written: PlacedPreemption | None) -> bool:
        """Tell whether these places are no longer reserved for the job, or never were."""
        return written is not None and self._over.get(uid) == written

    def clear(self) -> None:
        """Forget all moves, because the queue is rebuilt."""
        self._over.clear()
        self._made.clear()
        self._held_back.clear()

    def _of(self, uid: str) -> list[JobId]:
        made = (*self._made, *self._held_back)
        return [job for job in made if job.partition("/")[0] == uid]

    def _waits_again(self, shown: ShownJob, queue: Queue) -> bool:
        following = dataclasses.replace(shown.attempt, number=shown.attempt.number + 1)
        return job_id(following) in queue.state.pending

    def _find(self, shown: ShownJob, written: PlacedPreemption, queue: Queue, now: float) -> None:
        """Reserve the places of a job that was not submitted again since this process started.

        A revision reserves nothing for a victim of a preemption, or for a job that was backfilled
        on an estimate: the queue head waits for these GPUs.
        """
        job, uid = job_id(shown.attempt), shown.attempt.job_uid
        if job in self._made or self.is_over(uid, written):
            return
        owes = job in queue.state.running_victims() or job in queue.state.speculative
        if owes and all(each.reason == PreemptionReason.REVISED for each in written.victims):
            self._over[uid] = written
            return
        placed = preemptions.places(written, shown.tokens, shown.needs)
        if not placed:
            return
        running = queue.state.running.get(job)
        places = tuple(each.placement for each in placed)
        found = running.job if running else holders.gang_job(shown.attempt, places, shown, None)
        own = {each.reason for each in written.victims} == {PreemptionReason.REVISED}
        queue.reserve_for_move(found, places, self._ledger.cluster, now, in_place=own)
        self._made[job] = _Made(None, math.inf)

    def _release(self, job: JobId, queue: Queue, given_up: CancelReservation | None = None) -> None:
        self._made.pop(job, None)
        self._held_back.pop(job, None)
        stuck = given_up.stuck if given_up else ()
        queue.release(job, self._ledger.cluster, stuck=stuck)


def _own_move(shown: ShownJob) -> PlacedPreemption | None:
    """Return the move in the job's status, if it is one of the last ended attempt."""
    written = shown.preemption
    if written is None or not shown.may_wait or not shown.attempts:
        return None
    if not shown.has_ended:
        return None
    named = (
        each
        for each in written.victims
        if each.reason in _MOVES and job_id(shown.attempt) in each.attempts
    )
    return written if next(named, None) else None


def _moment(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
