# SPDX-License-Identifier: Apache-2.0
"""Writes to the API server that do not wait for one another."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

MAX_WRITES: Final = 8
"""That are under way at once for one GPUJob; the Job controller is slower anyway."""


async def at_once(writes: Iterable[Awaitable[T]]) -> list[T]:
    """Await writes, MAX_WRITES at once; the first error, if any, when all are over."""
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
