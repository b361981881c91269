# SPDX-License-Identifier: Apache-2.0
"""Workers that take keys from the queue; a pass that fails is repeated, later each time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from gpupack_kube import errors
from gpupack_operator.waitlist import Key
from gpupack_operator.work import WorkQueue

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 15.0

Pass = Callable[[Key], Awaitable[float | None]]


class Crew:
    """Works on several GPUJobs at once, and on each by one worker."""

    def __init__(self, queue: WorkQueue[Key], reconcile: Pass) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._failures: dict[Key, int] = {}

    def add_all(self, keys: Iterable[Key]) -> None:
        """Have all of these looked at."""
        for key in keys:
            self._queue.add(key)

    async def run(self, size: int) -> None:
        """Work for ever."""
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
            seconds = await self._reconcile(key)
        except errors.KubeError as error:
            log.warning("%s/%s: %s; trying again", *key, error)
            return self._failed(key)
        except Exception:
            # A bug about one GPUJob must not stop the others; the traceback is what mends it.
            log.exception("%s/%s: unexpected error; trying again", *key)
            return self._failed(key)
        self._failures.pop(key, None)
        return seconds

    def _failed(self, key: Key) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(FIRST_RETRY_SECONDS * 2.0 ** min(failures, 10), MAX_RETRY_SECONDS)
