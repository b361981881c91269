# SPDX-License-Identifier: Apache-2.0
"""A watchdog that ends an agent whose main loop hangs; `liveness` explains why."""

import asyncio
import faulthandler

HANG_SECONDS = 30.0
"""Longer than any stall of a busy machine; shorter than two liveness probes take to fail."""

REARMED_PER_HANG = 10


async def watchdog(hang_seconds: float = HANG_SECONDS) -> None:
    """Postpone the end of the process repeatedly, for as long as the loop runs.

    Args:
        hang_seconds: the longest time that the loop may hang.
    """
    try:
        while True:
            faulthandler.dump_traceback_later(hang_seconds, exit=True)
            await asyncio.sleep(hang_seconds / REARMED_PER_HANG)
    finally:
        faulthandler.cancel_dump_traceback_later()
