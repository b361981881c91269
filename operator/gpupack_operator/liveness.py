# SPDX-License-Identifier: Apache-2.0
"""A file's age as a sign of life.

The operator touches it from its event loop, leader or not; the probe looks at its age. What the
loop cannot see by running (a dead watch, a lost Lease) ends the process instead.
"""

import asyncio
import pathlib
import time

from gpupack_operator.errors import Unwell

BEAT_SECONDS = 5.0
STALE_SECONDS = 30.0


async def beat(heartbeat: pathlib.Path) -> None:
    """Touch the file for ever."""
    while True:
        heartbeat.touch()  # noqa: ASYNC240 - one inode of a tmpfs
        await asyncio.sleep(BEAT_SECONDS)


def probe(heartbeat: pathlib.Path) -> None:
    """Look at the file.

    Raises:
        Unwell: it is missing or too old.
    """
    try:
        age = time.time() - heartbeat.stat().st_mtime
    except FileNotFoundError as error:
        raise Unwell(f"{heartbeat} does not exist: the operator has not started yet") from error
    if age > STALE_SECONDS:
        raise Unwell(f"{heartbeat} is {age:.0f} s old: the operator's event loop hangs")
