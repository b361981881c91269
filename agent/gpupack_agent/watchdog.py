# SPDX-License-Identifier: Apache-2.0
"""Ends an agent whose main loop stands still; why, `liveness` says."""

import asyncio
import faulthandler

HANG_SECONDS = 30.0
"""Longer than any stall of a busy machine; less than the two probes that it takes to fail."""

REARMED_PER_HANG = 10


async def watchdog(hang_seconds: float = HANG_SECONDS) -> None:
    """Put the end of the process off again and again, for as long as the loop turns.

    Args:
        hang_seconds: how long it may stand still.
    """
    try:
        while True:
            faulthandler.dump_traceback_later(hang_seconds, exit=True)
            await asyncio.sleep(hang_seconds / REARMED_PER_HANG)
    finally:
        faulthandler.cancel_dump_traceback_later()
