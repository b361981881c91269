# SPDX-License-Identifier: Apache-2.0
"""Workers that take keys from the queue; a pass that fails is repeated, later each time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from gpupack_kubeclient import errors
from gpupack_operator.metrics import Metrics
from gpupack_operator.reconcile import MAX_RETRY_SECONDS
from gpupack_operator.waiting_jobs import Key
from gpupack_operator.work_queue import WorkQueue

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.1

Pass = Callable[[Key], Awaitable[float | None]]


class FailedPass(Protocol):
    """Callback for a pass that failed."""

    async def __call__(self, key: Key, error: Exception, *, failures: int) -> None:
        """Handle that the passes over this key have failed so many consecutive times."""


class WorkerPool:
    """Pool that reconciles several GPUJobs concurrently, each with one worker at a time.

    Args:
        queue: the keys to reconcile.
        reconcile: runs one pass.
        on_failure: is called after each failed pass.
        metrics: counts passes.
    """

    def __init__(
        self, queue: WorkQueue[Key], reconcile: Pass, on_failure: FailedPass, metrics: Metrics
    ) -> None:
        self._queue = queue
        self._metrics = metrics
        self._reconcile = reconcile
        self._on_failure = on_failure
        self._failures: dict[Key, int] = {}

    def add_all(self, keys: Iterable[Key]) -> None:
        """Queue all of these keys."""
        for key in keys:
            self._queue.add(key)

    async def run(self, size: int) -> None:
        """Work in an endless loop."""
        async with asyncio.TaskGroup() as group:
            for number in range(size):
                group.create_task(self._work(), name=f"worker {number}")

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                seconds = await self._one_pass(key)
            finally:
                self._queue.done(key)
            if seconds is not None:
                self._queue.add_later(key, seconds)

    async def _one_pass(self, key: Key) -> float | None:
        try:
            with self._metrics.timed_pass():
                seconds = await self._reconcile(key)
        except errors.KubeError as error:
            self._metrics.count_pass("api_error")
            log.warning("%s/%s: %s; trying again", *key, error)
            return await self._failed(key, error)
        except Exception as error:
            # A bug about one GPUJob must not stop the others; the traceback helps to fix it.
            self._metrics.count_pass("internal_error")
            log.exception("%s/%s: unexpected error; trying again", *key)
            return await self._failed(key, error)
        self._metrics.count_pass("done")
        self._failures.pop(key, None)
        return seconds

    async def _failed(self, key: Key, error: Exception) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        try:
            await self._on_failure(key, error, failures=failures)
        except Exception:
            # Nothing that one GPUJob causes may end the worker, here neither.
            log.exception("%s/%s: cannot tell of the failure", *key)
        return min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 10), MAX_RETRY_SECONDS)
