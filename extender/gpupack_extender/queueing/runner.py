# SPDX-License-Identifier: Apache-2.0
"""Task that runs the queue after each change, and when time alone makes a decision due.

A standby tracks running jobs and keeps no queue: its successor's operator requests again.
"""

import asyncio
import logging
from typing import Final

from gpupack_extender.queueing.queue_metrics import QueueMetrics
from gpupack_extender.readiness import Readiness
from gpupack_placement import LedgerConflict
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.queueing.admissions import Admissions
from gpupack_scheduler.queueing.quotas import QuotaStores
from gpupack_scheduler.queueing.turns import Turns

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.02
"""Pause between two runs: changes during it are processed together."""
LONGEST_SECONDS: Final = 1.0
"""Longest time without a run: readiness changes with time, and holds expire."""
TAKEOVER_SECONDS: Final = 0.05
"""Longest time without a run while this process leads and may not decide yet."""
FORGET_SECONDS: Final = 30.0


class QueueRunner:
    """Task that runs the queue."""

    def __init__(
        self,
        admissions: Admissions,
        turns: Turns,
        ledger: Ledger,
        quotas: QuotaStores,
        readiness: Readiness,
        metrics: QueueMetrics,
    ) -> None:
        self._admissions, self._turns = admissions, turns
        self._metrics = metrics
        self._ledger, self._readiness = ledger, readiness
        self._changed = asyncio.Event()
        self._leads = False
        self._forgot_at = 0.0
        ledger.changes.on_change = quotas.on_change = self._changed.set

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._seconds()):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            self.step()
            await asyncio.sleep(PAUSE_SECONDS)

    def step(self) -> None:
        """Process all changes, and decide if this process may.

        If queue and ledger contradict each other, the queue restarts: each waiting job then sends
        one request, while an end of the process would delay every job by half a minute.
        """
        try:
            self._step()
        except LedgerConflict:
            log.exception("the queue restarts")
            self._admissions.restart()

    def _step(self) -> None:
        self._follow_leadership()
        self._ledger.expire()
        if self._readiness.missing_to_answer():
            return
        if self._readiness.missing_to_decide():
            self._admissions.see()
            return
        with self._metrics.timed_cycle():
            goes_on = self._admissions.decide()
        if goes_on:
            self._changed.set()
        now = self._admissions.now()
        if now - self._forgot_at > FORGET_SECONDS:
            self._forgot_at = now
            self._admissions.forget_unknown()

    def _follow_leadership(self) -> None:
        leads = self._readiness.leadership.held
        if leads != self._leads:
            self._leads = leads
            self._admissions.withdraw_all()
            self._turns.begin()

    def _seconds(self) -> float:
        due = self._admissions.look_at
        if self._readiness.missing_to_decide():
            return TAKEOVER_SECONDS if self._readiness.leadership.held else LONGEST_SECONDS
        if due is None:
            return LONGEST_SECONDS
        return min(max(due - self._admissions.now(), 0.0), LONGEST_SECONDS)
