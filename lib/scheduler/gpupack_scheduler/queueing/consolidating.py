# SPDX-License-Identifier: Apache-2.0
"""Execution of consolidations: moves begin once the consolidation is written.

    decided ─► the operator writes it into the status of the job that it is for
            ─► the moves begin: each is one write, with which its attempt ends
            ─► all have ended: the job runs in their place, and they in the places reserved for them

A consolidation that is over before that is over as a whole, except for moves that are written:
these continue. A restart of this process has the same effect: if a job was to be moved and its new
place is not written, the place is lost, and the queue decides again.
"""

import logging
from typing import Final

from gpupack_queue import Consolidate, JobId, Queue
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.queueing.moving import MoveActions
from gpupack_scheduler.queueing.preempting import PreemptionActions

HOUR: Final = 3600.0

log = logging.getLogger(__name__)


class ConsolidationActions:
    """The consolidations in progress, by the job that each is for.

    `begun`, `moved`, `lost` and `gained`: written consolidations, their moved jobs, and
    GPU-seconds, since this process started.
    """

    def __init__(self, ledger: Ledger, preempting: PreemptionActions, moving: MoveActions) -> None:
        self._ledger, self._preempting, self._moving = ledger, preempting, moving
        self._made: dict[JobId, Consolidate] = {}
        self._begun: set[JobId] = set()
        self.begun, self.moved, self.lost, self.gained = 0, 0, 0.0, 0.0

    def decided(
        self, decision: Consolidate, queue: Queue, now: float, *, asking: AttemptKey | None
    ) -> None:
        """Reserve the place of the job and all new places; only the job itself is notified yet."""
        preempt = decision.preempt
        entry = queue.state.pending.get(preempt.job)
        if entry is None:
            return
        self._preempting.decided(
            preempt, queue, now, asking=asking, gained=decision.gained_gpu_seconds
        )
        for move in decision.moves:
            self._moving.defer(move, entry.job, preempt, queue, now)
        self._made[preempt.job] = decision

    def run(self, queue: Queue, now: float) -> None:
        """Begin the moves of written consolidations; end consolidations of which a part is over."""
        for job, decision in list(self._made.items()):
            if job not in self._preempting:
                self._end(job, decision, queue)
            elif job in self._begun:
                if any(self._stays(move.job, queue) for move in decision.moves):
                    self._preempting.release(job, queue)
                    self._end(job, decision, queue)
            elif self._preempting.is_written(job):
                self._begin(job, decision, now)

    def clear(self) -> None:
        """Forget all consolidations, because the queue is rebuilt."""
        self._made.clear()
        self._begun.clear()

    def _begin(self, job: JobId, decision: Consolidate, now: float) -> None:
        self._begun.add(job)
        for move in decision.moves:
            self._moving.begins(move.job, now)
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

    def _stays(self, job: JobId, queue: Queue) -> bool:
        """Tell whether a job runs on, because its move was not written in time."""
        return job in queue.state.running and job not in self._moving

    def _end(self, job: JobId, decision: Consolidate, queue: Queue) -> None:
        del self._made[job]
        self._begun.discard(job)
        for move in decision.moves:
            self._moving.cancels(move.job, queue)
