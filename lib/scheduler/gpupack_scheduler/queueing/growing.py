# SPDX-License-Identifier: Apache-2.0
"""Growth of elastic gangs: the place of each extra worker is held together with the gang's.

    with the gang's start   its place is in the gang's plan, and written with it
    later                   the operator is notified that the attempt can grow; it calls, and
                            writes the places into the status before anything runs there

Places that are not written in time are settled like any plan, and the queue may admit the worker
again.
"""

from collections.abc import Iterable

from gpupack_queue import Admit
from gpupack_scheduler.ledger.claims import State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.workers import AttemptKey, WorkerKey
from gpupack_scheduler.queueing.request import job_id
from gpupack_scheduler.queueing.running import RunningHolders


class GrowthActions:
    """The growth in progress; it has no state, since the ledger has the unwritten places."""

    def __init__(self, ledger: Ledger, *, hold_seconds: float) -> None:
        self._ledger, self._hold_seconds = ledger, hold_seconds

    def admit(
        self, admit: Admit, gang: AttemptKey, number: int, running: RunningHolders, now: float
    ) -> None:
        """Hold the place of an extra worker."""
        worker = WorkerKey(gang, running.least(gang) - 1 + number)
        self._ledger.hold_extra_worker(worker, admit.placements[0], seconds=self._hold_seconds)
        running.add_extra_worker(worker, now)

    def orders(self, unwritten: Iterable[AttemptKey]) -> tuple[str, ...]:
        """Return running attempts with places that are not written yet, as UID/NUMBER."""
        return tuple(sorted(job_id(each) for each in unwritten if self._grows(each)))

    def _grows(self, attempt: AttemptKey) -> bool:
        states = {claim.state for claim in self._ledger.plan_of(attempt)}
        return states == {State.PLANNED, State.WRITTEN}
