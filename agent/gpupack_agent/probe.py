# SPDX-License-Identifier: Apache-2.0
"""How the kubelet's exec probes see that the agent lives: a file that its main loop touches.

Alive: the file is fresh. Ready: it also says that the plugin is registered. A file and not a port:
nothing of the agent listens beyond its node's sockets.

How old it is, the monotonic clock says, which all processes of a machine share: by the wall clock a
healthy agent would look dead, or a hanging one alive, once somebody sets it.
"""

import pathlib
import time

import msgspec

FRESH_SECONDS = 15.0
"""Older than this, the main loop hangs or is gone. It writes once a second."""


class Sign(msgspec.Struct, frozen=True):
    """What the file holds."""

    registered: bool
    at: float = msgspec.field(default_factory=time.monotonic)
    """When it was left, monotonic seconds."""


def leave(path: pathlib.Path, sign: Sign) -> None:
    """Write the file, whole, since a probe may read at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(sign))
    temporary.replace(path)


def verdict(path: pathlib.Path, *, ready: bool) -> str:
    """Say what is wrong; empty when nothing is.

    Args:
        path: the file.
        ready: ask for readiness too, not only for life.
    """
    try:
        sign = msgspec.json.decode(path.read_bytes(), type=Sign)
    except (OSError, msgspec.MsgspecError) as error:
        return f"no sign of life: {error}"
    age_seconds = time.monotonic() - sign.at
    if age_seconds > FRESH_SECONDS:
        return f"the last sign of life is {age_seconds:.0f} s old: the agent hangs"
    if ready and not sign.registered:
        return "not registered with the kubelet"
    return ""
