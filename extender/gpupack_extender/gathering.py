# SPDX-License-Identifier: Apache-2.0
"""Gathering of a gang: its workers are bound together, once kube-scheduler has accepted them all.

    filter ─► bind: the place is held ─► waits until all workers of the gang are here ─► Binding
                                            └► refused: the attempt, the pod or the caller is gone

kube-scheduler calls bind for each pod from a separate task, when the pod has passed its filters and
its volumes are ready. A worker that it refuses never arrives here, so no worker of its gang is
bound, and no container of it starts: the others wait until the operator gives the attempt up
(BindTimeout), which releases their places.

A bound worker counts as arrived: after a restart the workers that arrive again find the rest. A
worker whose caller has disconnected does not count, although it holds its place until its next
check. Workers that share a pod arrive with it. An attempt that has begun once does not wait again,
whatever happens to its pods.

Extra workers of an elastic gang, gangs of one, and pods without a GPUJob do not wait.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from gpupack_extender.errors import GangIncomplete
from gpupack_scheduler.ledger.claims import PodClaim, State
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.workers import AttemptKey, WorkerKey

LOOK_SECONDS: Final = 0.5
"""How often a waiting worker checks that its place, its pod and its caller still exist."""

MAX_BEGUN: Final = 4096
"""Limit of attempts that are known to have begun; beyond it those without places are forgotten."""


class GangBarrier:
    """Record of the gangs that have gathered."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._begun: set[AttemptKey] = set()
        self._news: dict[AttemptKey, asyncio.Event] = defaultdict(asyncio.Event)
        self._waiting: dict[AttemptKey, dict[WorkerKey, Callable[[], bool]]] = defaultdict(dict)
        """Waiting workers, and whether their callers still wait."""
        self._is_closed = False

    def close(self) -> None:
        """End all waits: the process is about to end."""
        self._is_closed = True
        for news in self._news.values():
            news.set()

    async def wait(self, claim: PodClaim, is_wanted: Callable[[], bool]) -> None:
        """Wait until all workers of a pod's gang are here.

        Args:
            claim: the pod's place, which is held for its Binding.
            is_wanted: whether kube-scheduler still waits for an answer.

        Raises:
            GangIncomplete: the pod must not be bound now; no Binding was sent.
        """
        worker = claim.worker
        if worker is None or self._may_begin(worker):
            return
        attempt = worker.attempt
        self._waiting[attempt][worker] = is_wanted
        was_shown = False
        try:
            while not self._may_begin(worker):
                was_shown = self._require_pod(claim, was_shown=was_shown)
                self.require_place(worker, is_wanted)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news[attempt].wait(), LOOK_SECONDS)
        finally:
            self._leave(worker)

    def require_place(self, worker: WorkerKey, is_wanted: Callable[[], bool]) -> None:
        """Check that the worker still has its place, and that its caller waits.

        Raises:
            GangIncomplete: the worker must not be bound now.
        """
        if worker not in self._ledger.claims.workers:
            raise GangIncomplete(f"{worker.attempt} has given its places back")
        if self._is_closed or not is_wanted():
            raise GangIncomplete(f"{worker.attempt}: not all of its workers came to be bound")

    def _leave(self, worker: WorkerKey) -> None:
        attempt = worker.attempt
        self._waiting[attempt].pop(worker, None)
        if not self._waiting[attempt]:
            del self._waiting[attempt]
            self._news.pop(attempt, None)

    def _may_begin(self, worker: WorkerKey) -> bool:
        attempt = worker.attempt
        if attempt in self._begun:
            return True
        shown = self._ledger.jobs.shown(attempt.job_uid)
        if shown is None or shown.attempt != attempt:
            return False
        if worker.index >= shown.least or shown.least == 1:
            return True
        if not (shown.runs or self._are_here(attempt, shown.least)):
            return False
        self._begin(attempt)
        return True

    def _are_here(self, attempt: AttemptKey, least: int) -> bool:
        served = self._ledger.claims.served(attempt)
        if len(served) < self._ledger.claims.pods_needed(attempt, least):
            return False
        waiting = self._waiting.get(attempt, {})
        gone = {each for each, is_wanted in waiting.items() if not is_wanted()}
        here = (each for each in served if each.index < least and each not in gone)
        return sum(map(self._workers_in, here)) >= least

    def _workers_in(self, first: WorkerKey) -> int:
        """Count the workers of a pod that has arrived."""
        claims = self._ledger.claims
        return len(claims.in_pod(first)) if first in claims.workers else 1

    def _begin(self, attempt: AttemptKey) -> None:
        if len(self._begun) >= MAX_BEGUN:
            self._begun = {each for each in self._begun if self._ledger.claims.has_workers(each)}
        self._begun.add(attempt)
        if attempt in self._news:
            self._news[attempt].set()

    def _require_pod(self, claim: PodClaim, *, was_shown: bool) -> bool:
        """Check that the pod exists, and return whether the watch has shown it by now.

        A list without the pod does not affect its claim, as the pod may be newer.
        """
        held = self._ledger.claims.pods.get(claim.uid)
        is_shown = self._ledger.pods.waiting(claim.uid) is not None
        is_missing = was_shown and not is_shown
        if held is None or (is_missing and held.state is State.BINDING):
            raise GangIncomplete(f"pod {claim.name} is gone")
        return was_shown or is_shown
