# SPDX-License-Identifier: Apache-2.0
"""Ends an agent whose main loop hangs, with a traceback of where.

The liveness probe is not enough. A kubelet that calls Allocate waits for the answer without a limit
and does nothing else meanwhile, not even what its probes tell it: an agent that hangs on a dead
disk would hang the node with it. Its end breaks the call, and the kubelet starts it anew.

It is the interpreter's own watchdog thread, which needs no lock that the hanging call may hold.
"""

import asyncio
import faulthandler

HANG_SECONDS = 30.0
"""Longer than any stall of a busy machine; less than the three probes that it takes to fail."""

REARMED_PER_HANG = 10


async def watch(hang_seconds: float = HANG_SECONDS) -> None:
    """Put the end off again and again, for as long as the loop turns.

    Args:
        hang_seconds: how long it may stand still.
    """
    try:
        while True:
            faulthandler.dump_traceback_later(hang_seconds, exit=True)
            await asyncio.sleep(hang_seconds / REARMED_PER_HANG)
    finally:
        faulthandler.cancel_dump_traceback_later()
