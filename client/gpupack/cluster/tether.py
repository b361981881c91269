# SPDX-License-Identifier: Apache-2.0
"""A `kubectl port-forward` to the REST API that does not outlive the process that began it."""

import re
from typing import Final

HTTPS: Final = 443
CERTIFICATES: Final = 8443
"""The Service's port at which a caller may show a certificate; there is none where that is off."""

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
"""What runs in a shell whose input is a pipe of ours ends when that closes: with us, even by
SIGKILL. kubectl itself does not read its input; a parent's death signal was rejected, since it
comes when the thread ends that began the process. SIGTERM goes to all of them, and the shell
waits; its trap is set last, since a child has it for a moment too."""

_NO_PORT: Final = "does not have a service port"
_PORT: Final = re.compile(r"Forwarding from 127\.0\.0\.1:([0-9]{1,5})")


def tethered(program: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a program for as long as the command's standard input is open.

    Its input has to be a pipe, and its process group its own; the program reads nothing.
    """
    return ("/bin/sh", "-c", _SHELL, "sh", program, *arguments)


def forwarded_port(line: str) -> int | None:
    """The port of loopback that kubectl says it forwards, if this line says so."""
    found = _PORT.search(line)
    return int(found[1]) if found else None


def lacks_port(said: str) -> bool:
    """Whether kubectl says that the Service is there and has no such port."""
    return _NO_PORT in said
