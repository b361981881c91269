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
from gpupack_scheduler.queueing.queue_owner import QueueOwner
from gpupack_scheduler.queueing.quotas.quota_stores import QuotaStores

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.05
"""Pause between two runs: changes during it are processed together. kube-scheduler has up to
MAX_ADMITTED_PODS pods to bind in the meantime, which is more than it binds in this time."""
LONGEST_SECONDS: Final = 1.0
"""Longest time without a run: readiness changes with time, and holds expire."""
TAKEOVER_SECONDS: Final = 0.05
"""Longest time without a run while this process leads and may not decide yet."""
FORGET_SECONDS: Final = 30.0


class QueueRunner:
    """Task that runs the queue."""

    def __init__(
        self,
        owner: QueueOwner,
        ledger: Ledger,
        quotas: QuotaStores,
        readiness: Readiness,
        metrics: QueueMetrics,
    ) -> None:
        self._owner, self._metrics = owner, metrics
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
            self._owner.restart()

    def _step(self) -> None:
        self._follow_leadership()
        self._ledger.expire()
        if self._readiness.missing_to_answer():
            return
        if not self._leads:
            self._owner.observed.see()
            return
        if self._readiness.missing_to_decide():
            self._owner.see()
            return
        with self._metrics.timed_cycle():
            goes_on = self._owner.decide()
        if goes_on:
            self._changed.set()
        now = self._owner.now()
        if now - self._forgot_at > FORGET_SECONDS:
            self._forgot_at = now
            self._owner.forget_unknown()

    def _follow_leadership(self) -> None:
        leads = self._readiness.leadership.held
        if leads != self._leads:
            self._leads = leads
            self._owner.lead()

    def _seconds(self) -> float:
        due = self._owner.look_at
        if self._readiness.missing_to_decide():
            return TAKEOVER_SECONDS if self._readiness.leadership.held else LONGEST_SECONDS
        if due is None:
            return LONGEST_SECONDS
        return min(max(due - self._owner.now(), 0.0), LONGEST_SECONDS)
