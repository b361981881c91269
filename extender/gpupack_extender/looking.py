# SPDX-License-Identifier: Apache-2.0
"""The loop of tasks that act now and then, while this process decides."""

import asyncio
from collections.abc import Awaitable, Callable


async def look_forever(
    look: Callable[[], Awaitable[None]], *, seconds: float, decides: Callable[[], bool]
) -> None:
    """Call `look` every so many seconds, where this process decides then.

    What a look could not write is tried again at a later one.
    """
    while True:
        await asyncio.sleep(seconds)
        if decides():
            await look()
