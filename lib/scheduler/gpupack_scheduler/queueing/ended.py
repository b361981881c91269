# SPDX-License-Identifier: Apache-2.0
"""The end of an attempt in its GPUJob's status; its pods may still exist."""

from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.workers import WorkerKey
from gpupack_scheduler.queueing.request import extra_worker


def has_ended(ledger: Ledger, attempt: str) -> bool:
    """Tell whether an attempt or an extra worker has been ended.

    `attempt` is UID/NUMBER, or UID/NUMBER+WORKER for an extra worker.
    """
    extra = extra_worker(attempt)
    uid, _, number = (extra[0] if extra else attempt).partition("/")
    shown = ledger.jobs.shown(uid)
    if extra is not None and shown is not None:
        worker = WorkerKey(shown.attempt, shown.least + extra[1] - 1)
        is_placed = worker in ledger.claims.workers
        return not is_placed or str(shown.attempt.number) != number
    attempts = shown.attempts if shown else ()
    return any(str(each.number) == number and each.finished_at for each in attempts)
