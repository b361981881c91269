# SPDX-License-Identifier: Apache-2.0
"""Concurrent writes to the API server."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

MAX_WRITES: Final = 8
"""Largest number of concurrent writes for one GPUJob; the Job controller is slower anyway."""


async def gather_writes(writes: Iterable[Awaitable[T]]) -> list[T]:
    """Await writes, MAX_WRITES at once; raise the first error, if any, after all have ended."""
    slots = asyncio.Semaphore(MAX_WRITES)

    async def one(write: Awaitable[T]) -> T:
        async with slots:
            return await write

    answers = await asyncio.gather(*map(one, writes), return_exceptions=True)
    done: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        done.append(answer)
    return done
