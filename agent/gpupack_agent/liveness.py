# SPDX-License-Identifier: Apache-2.0
"""Whether the agent's main loop turns: a file for the kubelet's exec probes, and a watchdog.

Alive: the file is fresh. Ready: it also says that the plugins are registered. A file and not a
port: nothing of the agent listens beyond its node's sockets. How old it is, the monotonic clock
says, which all processes of a machine share: by the wall clock a healthy agent would look dead, or
a hanging one alive, once somebody sets it.

The probe is not enough. A kubelet that calls Allocate waits for the answer without a limit and does
nothing else meanwhile, not even what its probes tell it: an agent that hangs on a dead disk would
hang the node with it. So the watchdog ends it, with a traceback of where it hangs: that breaks the
call, and the kubelet starts the agent anew. It is the interpreter's own thread, which needs no lock
that the hanging call may hold.
"""

import asyncio
import faulthandler
import pathlib
import time

import msgspec

FRESH_SECONDS = 15.0
"""Older than this, the main loop hangs or is gone. It writes once a second."""

HANG_SECONDS = 30.0
"""Longer than any stall of a busy machine; less than the three probes that it takes to fail."""

REARMED_PER_HANG = 10


class State(msgspec.Struct, frozen=True):
    """What the file holds."""

    registered: bool
    at: float = msgspec.field(default_factory=time.monotonic)
    """When it was written, monotonic seconds."""


def write(path: pathlib.Path, state: State) -> None:
    """Write the file, whole, since a probe may read at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(state))
    temporary.replace(path)


def problem(path: pathlib.Path, *, ready: bool) -> str:
    """Say what is wrong; empty when nothing is.

    Args:
        path: the file.
        ready: ask for readiness too, not only for life.
    """
    try:
        state = msgspec.json.decode(path.read_bytes(), type=State)
    except (OSError, msgspec.MsgspecError) as error:
        return f"no sign of life: {error}"
    age_seconds = time.monotonic() - state.at
    if age_seconds > FRESH_SECONDS:
        return f"the last sign of life is {age_seconds:.0f} s old: the agent hangs"
    if ready and not state.registered:
        return "not registered with the kubelet"
    return ""


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
