# SPDX-License-Identifier: Apache-2.0
"""The log of an MPS daemon, read for clients that fail together. Pure.

The log names one client that «encountered a fatal GPU error». That client need not be the cause: on
an H200 (driver 580) the log named the neighbour of the client whose kernel wrote to invalid memory.
So no client is blamed by it. The log also shows which clients ended just before. A client that ends
while its kernels run can make the others fail, and the log shows its end before their error.
"""

import re
from collections import deque

from gpupack_agent.mps.folder import Fault

EXIT_WINDOW_SECONDS = 2.0
"""The time before a fault within which an ended client may be its cause.

On an H200 the error of the others came 0.05 to 0.2 s after the end of the client that caused it.
"""

_FATAL = re.compile(r"Client \{PID: (\d+), Context: \d+\} encountered a fatal GPU error")
_TORN_DOWN = re.compile(r"Client \{PID: (\d+), Context ID: \d+\} on device \d+ to be torn down")
_EXITED = re.compile(r"Client \{PID: (\d+), Context ID: \d+\} exiting")
_LAST_LINE = "client process have a sticky error set"


class LogReader:
    """The reader of one daemon's log, line by line."""

    def __init__(self) -> None:
        self._exited: deque[tuple[float, int]] = deque(maxlen=64)
        self._clients: dict[int, None] = {}

    def read(self, line: str, *, now: float) -> Fault | None:
        """Read one line; return a fault if the line is the last one about it, else None.

        Args:
            line: the next line.
            now: the time when it was written, seconds since the epoch.
        """
        if found := _FATAL.search(line) or _TORN_DOWN.search(line):
            self._clients[int(found[1])] = None
        elif not self._clients and (found := _EXITED.search(line)):
            self._exited.append((now, int(found[1])))
        elif self._clients and _LAST_LINE in line:
            return self._fault(now)
        return None

    def _fault(self, now: float) -> Fault:
        clients, self._clients = tuple(self._clients), {}
        exited = {pid: None for at, pid in self._exited if now - at <= EXIT_WINDOW_SECONDS}
        return Fault(now, clients, tuple(pid for pid in exited if pid not in clients))
