# SPDX-License-Identifier: Apache-2.0
"""Heartbeat file, which shows when the operator was last alive.

The operator writes it from its event loop, leader or not; the probe checks its age. What the loop
does not detect by running (a dead watch, a lost Lease) ends the process instead.

The file contains the monotonic clock, which all processes of a machine share until it boots. Its
modification time would suffice only if the wall clock is never set: forward, and a healthy operator
looks dead; back, and a hanging one looks alive.
"""

import asyncio
import logging
import pathlib
import time
from collections.abc import Mapping

from gpupack_kubeclient.environment import Environment
from gpupack_operator.errors import HeartbeatStale

log = logging.getLogger(__name__)

DEFAULT_HEARTBEAT = "/tmp/gpupack-operator.heartbeat"  # noqa: S108 - the pod's own emptyDir
BEAT_SECONDS = 5.0
STALE_SECONDS = 30.0


def heartbeat_path(environ: Mapping[str, str]) -> pathlib.Path:
    """Return the file that the probe reads; the probe needs no other setting."""
    return Environment(environ).path("GPUPACK_HEARTBEAT_FILE", DEFAULT_HEARTBEAT)


async def beat(heartbeat: pathlib.Path) -> None:
    """Write the file in an endless loop; the probe detects a file that cannot be written."""
    while True:
        try:
            write(heartbeat)
        except OSError as error:
            log.warning("cannot write the heartbeat file: %s", error)
        await asyncio.sleep(BEAT_SECONDS)


def write(heartbeat: pathlib.Path) -> None:
    """Replace the file atomically, since the probe may read at any time."""
    temporary = heartbeat.with_suffix(".tmp")
    temporary.write_text(str(time.monotonic()))
    temporary.replace(heartbeat)


def probe(heartbeat: pathlib.Path) -> None:
    """Check the file's age.

    Raises:
        HeartbeatStale: the file is missing, unreadable or too old.
    """
    try:
        age = time.monotonic() - float(heartbeat.read_text())
    except FileNotFoundError as error:
        raise HeartbeatStale(
            f"{heartbeat} does not exist: the operator has not started yet"
        ) from error
    except ValueError as error:
        raise HeartbeatStale(f"{heartbeat} cannot be read: {error}") from error
    if age > STALE_SECONDS:
        raise HeartbeatStale(f"{heartbeat} is {age:.0f} s old: the operator's event loop hangs")
