# SPDX-License-Identifier: Apache-2.0
"""Loop of tasks that act periodically, while this process decides."""

import asyncio
from collections.abc import Awaitable, Callable


async def look_forever(
    look: Callable[[], Awaitable[None]], *, seconds: float, decides: Callable[[], bool]
) -> None:
    """Call `look` every so many seconds, if this process decides then.

    A later call repeats what one could not write.
    """
    while True:
        await asyncio.sleep(seconds)
        if decides():
            await look()
