# SPDX-License-Identifier: Apache-2.0
"""Slow answers that do not delay other calls: questions about the queue and about free GPUs.

    the event loop   copies the state: some milliseconds
    one thread       computes on the copy

One question is answered at a time, since threads share one interpreter; a user has one at once, and
the number of waiting ones is limited. The size of a GPUJob's request limits the cost of a question,
as it does for the scheduler's decisions.
"""

import asyncio
import contextlib
import http
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from gpupack_apiserver.rights import rate_limit_key
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.user import User
from gpupack_placement import Cluster
from gpupack_scheduler.queueing.read_only_queue import ReadOnlyQueue
from gpupack_scheduler.queueing.what_if import Answer, Prepared

T = TypeVar("T")

MAX_QUESTIONS: Final = 16
"""Maximum waiting questions of all users together."""

FOLLOW_SECONDS: Final = 0.5
"""Seconds between two updates of the queue, so that a question has few changes to take in."""


class Questions:
    """Questions about the read-only queue."""

    def __init__(self, queue_copy: ReadOnlyQueue, *, is_known: Callable[[], bool]) -> None:
        """Keep the queue; `is_known` tells whether the cluster's state is known."""
        self.queue_copy, self._is_known = queue_copy, is_known
        self._in_progress: set[str] = set()
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="questions")

    async def run(self) -> None:
        """Follow the queue, without end."""
        while True:
            if self._is_known():
                self.queue_copy.follow()
            await asyncio.sleep(FOLLOW_SECONDS)

    async def answer(
        self, user: User, prepare: Callable[[], Prepared], compute: Callable[[Prepared], Answer]
    ) -> Answer:
        """Prepare and compute an answer when its turn has come.

        Raises:
            Denied: the user has another question open, or too many wait.
        """
        async with self._wait_for_turn(user):
            prepared = prepare()
            found = await self._in_thread(lambda: compute(prepared))
            if found.findings is not None:
                self.queue_copy.remember(found.findings, prepared.cluster)
            return found

    async def answer_on_cluster(
        self, user: User, cluster: Cluster, compute: Callable[[Cluster], T]
    ) -> T:
        """Compute on a copy of the cluster when its turn has come; raises as `answer`."""
        async with self._wait_for_turn(user):
            copy = cluster.fork()
            return await self._in_thread(lambda: compute(copy))

    async def _in_thread(self, compute: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, compute)

    @contextlib.asynccontextmanager
    async def _wait_for_turn(self, user: User) -> AsyncIterator[None]:
        with self._count_in(rate_limit_key(user)):
            async with self._lock:
                yield

    @contextlib.contextmanager
    def _count_in(self, key: str) -> Iterator[None]:
        if key in self._in_progress:
            raise _too_many(f"{key} has another request in progress; wait for its answer")
        if len(self._in_progress) >= MAX_QUESTIONS:
            raise _too_many(
                f"{MAX_QUESTIONS} requests are in progress; repeat the request in a second"
            )
        self._in_progress.add(key)
        try:
            yield
        finally:
            self._in_progress.discard(key)


def _too_many(message: str) -> Denied:
    return Denied(message, status=http.HTTPStatus.TOO_MANY_REQUESTS)
