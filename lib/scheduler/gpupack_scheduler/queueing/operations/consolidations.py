# SPDX-License-Identifier: Apache-2.0
"""Consolidations: moves that are ordered once the consolidation is written.

    decided ─► the operator writes it into the status of the job that it is for
            ─► the moves are ordered: each is one write, with which its attempt ends
            ─► all have ended: the job runs in their place, and they in the places reserved for them

A consolidation that is over before that is over as a whole, except for moves that are written:
these continue. A restart of this process has the same effect: if a job was to be moved and its new
place is not written, the place is lost, and the queue decides again.
"""

import logging
from typing import Final

from gpupack_queue import Consolidate, JobId, Queue
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.queueing.operations.moves import Moves
from gpupack_scheduler.queueing.operations.operation import Event, Operation, Operations, Phase
from gpupack_scheduler.queueing.operations.preemptions import Preemptions

HOUR: Final = 3600.0

log = logging.getLogger(__name__)


class Consolidations:
    """The consolidations, by the job that each is for.

    Attributes:
        begun: written consolidations since this process started.
        moved: jobs that these move.
        lost: GPU-seconds that the moves cost at the most.
        gained: GPU-seconds by which jobs start earlier.
    """

    def __init__(self, queue: Queue, preemptions: Preemptions, moves: Moves) -> None:
        self._queue, self._preemptions, self._moves = queue, preemptions, moves
        self._operations: Operations[Consolidate] = Operations()
        self.begun, self.moved, self.lost, self.gained = 0, 0, 0.0, 0.0

    def decide(self, decision: Consolidate, now: float, *, asking: AttemptKey | None) -> None:
        """Reserve the place of the job and all new places; only the job itself is notified yet."""
        preempt = decision.preempt
        entry = self._queue.state.pending.get(preempt.job)
        if entry is None:
            return
        gained = decision.gained_gpu_seconds
        self._preemptions.decide(preempt, now, asking=asking, gained=gained)
        for move in decision.moves:
            self._moves.defer(move, entry.job, preempt, now)
        self._operations.put(preempt.job, Operation.decided(decision, now))

    def advance(self, now: float) -> None:
        """Order the moves of written consolidations; end those of which a part is over."""
        for job, operation in self._operations.items():
            phase = self._preemptions.operations.phase(job)
            if phase is None:
                self._end(job, operation.decision)
            elif operation.phase is Phase.TERMINATING:
                if any(self._stays(move.job) for move in operation.decision.moves):
                    self._preemptions.release(job)
                    self._end(job, operation.decision)
            elif phase is not Phase.DECIDED:
                self._operations.apply(job, Event.SHOWN)
                self._order_moves(job, operation.decision, now)

    def clear(self) -> None:
        """Forget all consolidations, because the queue is rebuilt."""
        self._operations.clear()

    def _order_moves(self, job: JobId, decision: Consolidate, now: float) -> None:
        self._operations.apply(job, Event.VICTIMS_END)
        for move in decision.moves:
            self._moves.order(move.job, now)
        self.begun += 1
        self.moved += len(decision.moves)
        self.lost += decision.lost_gpu_seconds
        self.gained += decision.gained_gpu_seconds
        log.info(
            "%s are moved so that %s has room: %.2f GPU-hours at the most for %.2f",
            ", ".join(move.job for move in decision.moves),
            job,
            decision.lost_gpu_seconds / HOUR,
            decision.gained_gpu_seconds / HOUR,
        )

    def _stays(self, job: JobId) -> bool:
        """Tell whether a job runs on, because its move was not written in time."""
        return job in self._queue.state.running and job not in self._moves.operations

    def _end(self, job: JobId, decision: Consolidate) -> None:
        runs = job in self._queue.state.running
        self._operations.apply(job, Event.STARTED if runs else Event.WITHDRAWN)
        for move in decision.moves:
            self._moves.withdraw(move.job)
