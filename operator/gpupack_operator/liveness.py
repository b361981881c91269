# SPDX-License-Identifier: Apache-2.0
"""A file that says when the operator last lived.

The operator writes it from its event loop, leader or not; the probe looks how old it is. What the
loop cannot see by running (a dead watch, a lost Lease) ends the process instead.

The file holds the monotonic clock, which all processes of a machine share until it boots. Its
modification time would do as long as nobody sets the wall clock: forward, and a healthy operator
looks dead; back, and a hanging one looks alive.
"""

import asyncio
import logging
import pathlib
import time
from collections.abc import Mapping

from gpupack_kube.environment import Environment
from gpupack_operator.errors import HeartbeatStale

log = logging.getLogger(__name__)

DEFAULT_HEARTBEAT = "/tmp/gpupack-operator.heartbeat"  # noqa: S108 - the pod's own emptyDir
BEAT_SECONDS = 5.0
STALE_SECONDS = 30.0


def heartbeat_path(environ: Mapping[str, str]) -> pathlib.Path:
    """The file that the probe reads; it needs no other setting."""
    return Environment(environ).path("GPUPACK_HEARTBEAT_FILE", DEFAULT_HEARTBEAT)


async def beat(heartbeat: pathlib.Path) -> None:
    """Write the file for ever; one that cannot be written is the probe's to judge."""
    while True:
        try:
            write(heartbeat)
        except OSError as error:
            log.warning("cannot say that the operator lives: %s", error)
        await asyncio.sleep(BEAT_SECONDS)


def write(heartbeat: pathlib.Path) -> None:
    """Write the file, whole, since the probe may read at any moment."""
    temporary = heartbeat.with_suffix(".tmp")
    temporary.write_text(str(time.monotonic()))
    temporary.replace(heartbeat)


def probe(heartbeat: pathlib.Path) -> None:
    """Look at the file.

    Raises:
        HeartbeatStale: it is missing, unreadable or too old.
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
