# SPDX-License-Identifier: Apache-2.0
"""A `kubectl port-forward` to the REST API that ends with the process that started it."""

import re
from typing import Final

HTTPS_PORT: Final = 443
CERTIFICATES_PORT: Final = 8443
"""The Service's port that accepts client certificates; it does not exist where that is off."""

_SHELL: Final = """
exec 3<&0
"$@" 3<&- </dev/null &
kubectl=$!
{ read -r _ <&3; kill "$kubectl"; } >/dev/null 2>&1 &
exec 3<&- 2>/dev/null
trap : TERM
wait "$kubectl"
ended=$?
while kill -0 "$kubectl"; do
    wait "$kubectl"
    ended=$?
done
kill "$!"
wait "$!"
exit "$ended"
"""
"""A script whose shell and children end when the pipe at its input closes.

That happens when this process ends, even by SIGKILL. kubectl itself does not read its input. A
parent-death signal is not used, since it comes when the thread ends that started the process.
SIGTERM goes to all of them, and the shell waits; its trap is set last, since a child has it for a
moment too.
"""

_NO_PORT: Final = "does not have a service port"
_PORT: Final = re.compile(r"Forwarding from 127\.0\.0\.1:([0-9]{1,5})")


def run_while_input_open(program: str, *arguments: str) -> tuple[str, ...]:
    """Return a command that runs a program for as long as the command's input is open.

    Its input has to be a pipe, and it needs its own process group; the program gets no input.
    """
    return ("/bin/sh", "-c", _SHELL, "sh", program, *arguments)


def forwarded_port(line: str) -> int | None:
    """Return the loopback port in a line of kubectl's output, if the line names one."""
    found = _PORT.search(line)
    return int(found[1]) if found else None


def lacks_port(output: str) -> bool:
    """Return whether kubectl reports that the Service exists and has no such port."""
    return _NO_PORT in output
