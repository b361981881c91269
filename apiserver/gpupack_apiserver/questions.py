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

import gpupack_placement as core
from gpupack_apiserver.rights import who_counts
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.user import User
from gpupack_scheduler.queueing.read_only_queue import ReadOnlyQueue
from gpupack_scheduler.queueing.what_if import Answer, Prepared

T = TypeVar("T")

MOST: Final = 16
"""Maximum waiting questions of all users together."""

FOLLOW_SECONDS: Final = 0.5
"""Seconds between two updates of the queue, so that a question has few changes to take in."""


class Questions:
    """Questions about the read-only queue."""

    def __init__(self, onlooker: ReadOnlyQueue, *, is_known: Callable[[], bool]) -> None:
        """Keep the queue; `is_known` tells whether the cluster's state is known."""
        self.onlooker, self._is_known = onlooker, is_known
        self._asking: set[str] = set()
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="questions")

    async def run(self) -> None:
        """Follow the queue, without end."""
        while True:
            if self._is_known():
                self.onlooker.follow()
            await asyncio.sleep(FOLLOW_SECONDS)

    async def answer(
        self, user: User, prepare: Callable[[], Prepared], ask: Callable[[Prepared], Answer]
    ) -> Answer:
        """Prepare and compute an answer when its turn has come.

        Raises:
            Denied: the user has another question open, or too many wait.
        """
        async with self._turn_of(user):
            prepared = prepare()
            found = await self._in_thread(lambda: ask(prepared))
            if found.findings is not None:
                self.onlooker.remember(found.findings, prepared.cluster)
            return found

    async def of_cluster(
        self, user: User, cluster: core.Cluster, ask: Callable[[core.Cluster], T]
    ) -> T:
        """Compute on a copy of the cluster when its turn has come; raises as `answer`."""
        async with self._turn_of(user):
            copy = cluster.fork()
            return await self._in_thread(lambda: ask(copy))

    async def _in_thread(self, ask: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, ask)

    @contextlib.asynccontextmanager
    async def _turn_of(self, user: User) -> AsyncIterator[None]:
        with self._among_others(who_counts(user)):
            async with self._turn:
                yield

    @contextlib.contextmanager
    def _among_others(self, who: str) -> Iterator[None]:
        if who in self._asking:
            raise _later(f"{who} has another request in progress; wait for its answer")
        if len(self._asking) >= MOST:
            raise _later(f"{MOST} requests are in progress; repeat the request in a second")
        self._asking.add(who)
        try:
            yield
        finally:
            self._asking.discard(who)


def _later(why: str) -> Denied:
    return Denied(why, status=http.HTTPStatus.TOO_MANY_REQUESTS)
