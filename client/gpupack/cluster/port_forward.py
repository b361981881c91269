# SPDX-License-Identifier: Apache-2.0
"""A `kubectl port-forward` that ends with the process that started it."""

import collections
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

START_SECONDS: Final = 20.0
END_SECONDS: Final = 5.0
MAX_LINES: Final = 100
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


class NotForwarded(Exception):
    """Kubectl has ended without a forwarded port; the text is its output."""

    @property
    def lacks_port(self) -> bool:
        """Whether the Service exists and has no such port."""
        return _NO_PORT in str(self)


class PortForward:
    """A `kubectl port-forward` of a free loopback port, from its start to `close`.

    Attributes:
        port: future of the port; NotForwarded: kubectl has ended without one.

    Args:
        kubectl: path of kubectl.
        environ: variables of the process.
        target: KIND/NAME.
        target_port: its port.
        options: options of kubectl that select the cluster and the namespace.
    """

    def __init__(
        self,
        kubectl: str,
        environ: Mapping[str, str],
        target: str,
        target_port: int,
        *options: str,
    ) -> None:
        self.port: Future[int] = Future()
        self.port.set_running_or_notify_cancel()
        self._process = subprocess.Popen(  # noqa: S603 - a program of the user's own, arguments as a list
            run_while_input_open(kubectl, *options, "port-forward", target, f":{target_port}"),
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C is only for the program, which still needs this connection when it ends.
            process_group=0,
        )
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def has_ended(self) -> bool:
        """Whether kubectl has ended."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End it."""
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group of the shell, kubectl and the reader of the pipe."""
        if not self.has_ended:
            os.killpg(self._process.pid, number)

    def _read(self) -> None:
        """Read the output to its end: kubectl logs each connection, and waits for the reader."""
        lines: collections.deque[str] = collections.deque(maxlen=MAX_LINES)
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        with self._process.stdout as output:
            for line in output:
                lines.append(line)
                found = _PORT.search(line)
                if found and not self.port.done():
                    self.port.set_result(int(found[1]))
        if not self.port.done():
            self.port.set_exception(NotForwarded("".join(lines).strip()))


def run_while_input_open(program: str, *arguments: str) -> tuple[str, ...]:
    """Return a command that runs a program for as long as the command's input is open.

    Its input has to be a pipe, and it needs its own process group; the program gets no input.
    """
    return ("/bin/sh", "-c", _SHELL, "sh", program, *arguments)
