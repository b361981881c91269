# SPDX-License-Identifier: Apache-2.0
"""The sign of life of the agent's main loop: a file for the kubelet's exec probes.

The agent is alive if the file is fresh. It is ready if the file also says that the plugins are
registered. It is a file and no port, so that the agent needs no port for its probes. The monotonic
clock, which all processes of a machine share, gives the file's age. By the wall clock a healthy
agent would look dead, or a hanging one alive, after a change of the time.

The probe is not enough. A kubelet that calls Allocate waits for the answer without a limit and does
nothing else during that time; it does not even act on its probes. An agent that hangs on a dead
disk would make the node hang. So `watchdog` ends the agent, with a traceback of the place where it
hangs. That breaks the call, and the kubelet restarts the agent. The watchdog is the interpreter's
own thread, which needs no lock that the hanging call may hold.

The kubelet starts a Python process for each probe. That is most of the cost of an idle agent, so
`probe` imports little: the watchdog is in a separate module.
"""

import json
import pathlib
import time

FILE = pathlib.Path("/run/gpupack-agent/alive")

FRESH_SECONDS = 15.0
"""The age from which the main loop counts as hanging or gone. It writes once a second."""


def write(path: pathlib.Path, *, registered: bool, at: float | None = None) -> None:
    """Replace the file as a whole, because a probe may read it at any moment.

    Args:
        path: the file.
        registered: whether the plugins are registered at the kubelet.
        at: the time, monotonic seconds; None: now.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    moment = time.monotonic() if at is None else at
    temporary.write_text(json.dumps({"registered": registered, "at": moment}))
    temporary.replace(path)


def problem(path: pathlib.Path, *, ready: bool) -> str:
    """Return the problem of the agent; empty if there is none.

    Args:
        path: the file.
        ready: whether to check readiness as well as life.
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
