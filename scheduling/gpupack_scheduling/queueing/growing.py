# SPDX-License-Identifier: Apache-2.0
"""Carries the growth of elastic gangs through: each extra worker's place is held beside the gang's.

    beside a gang that starts   its place is in the gang's plan, and written with it
    later                       the operator is told that there is more for the attempt; it asks,
                                and writes the places into the status before anything runs there

What is not written in time is settled as any plan is, and the queue may let the worker in again.
"""

from collections.abc import Iterable

from gpupack_core.queueing import Admit
from gpupack_scheduling.ledger.claims import State
from gpupack_scheduling.ledger.ledger import Ledger
from gpupack_scheduling.ledger.workers import AttemptKey, WorkerKey
from gpupack_scheduling.queueing.ask import job_id
from gpupack_scheduling.queueing.running import RunningHolders


class Growing:
    """Keeps nothing: what is held and not written is in the ledger."""

    def __init__(self, ledger: Ledger, *, hold_seconds: float) -> None:
        self._ledger, self._hold_seconds = ledger, hold_seconds

    def admit(
        self, admit: Admit, gang: AttemptKey, number: int, running: RunningHolders, now: float
    ) -> None:
        """Hold the place of an extra worker."""
        worker = WorkerKey(gang, running.least(gang) - 1 + number)
        self._ledger.hold_beside(worker, admit.placements[0], seconds=self._hold_seconds)
        running.let_in_beside(worker, now)

    def orders(self, unwritten: Iterable[AttemptKey]) -> tuple[str, ...]:
        """Attempts that run, of which places are not written yet, as UID/NUMBER."""
        return tuple(sorted(job_id(each) for each in unwritten if self._grows(each)))

    def _grows(self, attempt: AttemptKey) -> bool:
        states = {claim.state for claim in self._ledger.plan_of(attempt)}
        return states == {State.PLANNED, State.WRITTEN}
