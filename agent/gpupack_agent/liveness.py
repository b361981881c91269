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

The kubelet starts a Python for each probe. That is most of what an agent at rest costs, so what
`probe` imports of it is little: the watchdog is in a module of its own.
"""

import json
import pathlib
import time

FILE = pathlib.Path("/run/gpupack-agent/alive")

FRESH_SECONDS = 15.0
"""Older than this, the main loop hangs or is gone. It writes once a second."""


def write(path: pathlib.Path, *, registered: bool, at: float | None = None) -> None:
    """Write the file, whole, since a probe may read at any moment.

    Args:
        path: the file.
        registered: whether the kubelet knows the plugins.
        at: monotonic seconds; None: now.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    moment = time.monotonic() if at is None else at
    temporary.write_text(json.dumps({"registered": registered, "at": moment}))
    temporary.replace(path)


def problem(path: pathlib.Path, *, ready: bool) -> str:
    """Say what is wrong; empty when nothing is.

    Args:
        path: the file.
        ready: ask for readiness too, not only for life.
    """
    try:
        state = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        return f"no sign of life: {error}"
    age_seconds = time.monotonic() - state["at"]
    if age_seconds > FRESH_SECONDS:
        return f"the last sign of life is {age_seconds:.0f} s old: the agent hangs"
    if ready and not state["registered"]:
        return "not registered with the kubelet"
    return ""
