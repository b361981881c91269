# SPDX-License-Identifier: Apache-2.0
"""Carries consolidations through: who is moved is moved once it is written for whom.

    decided ─► the operator writes it into the status of the job that has room then
            ─► the moves begin: each stands in one write, with which its attempt ends
            ─► all have ended: the job runs in their place, and they where room is kept for them

What is over before that is over as a whole, but for moves that are written: those go on. After a
restart of this process too: where somebody was to be moved and his places are not written, nobody
knows them, and it is decided anew.
"""

import logging
from typing import Final

from gpupack_core.queueing import Consolidate, JobId, Queue
from gpupack_scheduling.ledger.ledger import Ledger
from gpupack_scheduling.ledger.workers import AttemptKey
from gpupack_scheduling.queueing.moving import Moving
from gpupack_scheduling.queueing.preempting import Preempting

HOUR: Final = 3600.0

log = logging.getLogger(__name__)


class Consolidating:
    """Those that stand, by the job that has room then.

    `begun`, `lost` and `gained`: consolidations that were written, and GPU-seconds, since this
    process began.
    """

    def __init__(self, ledger: Ledger, preempting: Preempting, moving: Moving) -> None:
        self._ledger, self._preempting, self._moving = ledger, preempting, moving
        self._made: dict[JobId, Consolidate] = {}
        self._begun: set[JobId] = set()
        self.begun, self.moved, self.lost, self.gained = 0, 0, 0.0, 0.0

    def decided(
        self, decision: Consolidate, queue: Queue, now: float, *, asking: AttemptKey | None
    ) -> None:
        """Keep the room and all places; nobody is told of it yet but the job itself."""
        preempt = decision.preempt
        entry = queue.state.waiting.get(preempt.job)
        if entry is None:
            return
        self._preempting.decided(preempt, queue, now, asking=asking, gained=decision.gained)
        for move in decision.moves:
            self._moving.holds_back(move, entry.job, preempt, queue, now)
        self._made[preempt.job] = decision

    def look(self, queue: Queue, now: float) -> None:
        """Begin the moves of those that are written; end those of which something is over."""
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
        """The queue begins anew."""
        self._made.clear()
        self._begun.clear()

    def _begin(self, job: JobId, decision: Consolidate, now: float) -> None:
        self._begun.add(job)
        for move in decision.moves:
            self._moving.begins(move.job, now)
        self.begun += 1
        self.moved += len(decision.moves)
        self.lost += decision.lost
        self.gained += decision.gained
        log.info(
            "%s are moved so that %s has room: %.2f GPU-hours at the most for %.2f",
            ", ".join(move.job for move in decision.moves),
            job,
            decision.lost / HOUR,
            decision.gained / HOUR,
        )

    def _stays(self, job: JobId, queue: Queue) -> bool:
        """Whether it runs on: its move was not written in time."""
        return job in queue.state.running and job not in self._moving

    def _end(self, job: JobId, decision: Consolidate, queue: Queue) -> None:
        del self._made[job]
        self._begun.discard(job)
        for move in decision.moves:
            self._moving.cancels(move.job, queue)
