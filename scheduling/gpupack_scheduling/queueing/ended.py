# SPDX-License-Identifier: Apache-2.0
"""Whether an attempt has been ended, by what its GPUJob's status says; its pods may not be gone."""

from gpupack_scheduling.ledger.ledger import Ledger
from gpupack_scheduling.ledger.workers import WorkerKey
from gpupack_scheduling.queueing.ask import extra_worker


def has_ended(ledger: Ledger, attempt: str) -> bool:
    """Of an attempt, UID/NUMBER, or of one of its workers beyond the least, UID/NUMBER+WORKER."""
    extra = extra_worker(attempt)
    uid, _, number = (extra[0] if extra else attempt).partition("/")
    shown = ledger.jobs.shown(uid)
    if extra is not None and shown is not None:
        worker = WorkerKey(shown.attempt, shown.least + extra[1] - 1)
        is_placed = worker in ledger.claims.workers
        return not is_placed or str(shown.attempt.number) != number
    attempts = shown.attempts if shown else ()
    return any(str(each.number) == number and each.finished_at for each in attempts)
