# SPDX-License-Identifier: Apache-2.0
"""What the log of an MPS daemon says of clients that fail together. Pure.

The log names one client that «encountered a fatal GPU error», and that need not be the one that
made it: on an H200 (driver 580) it named the neighbour of the one whose kernel wrote where it may
not. So nobody is blamed by it. Who was gone just before is another matter: a client that ends in
the midst of its kernels can take the others along, and the log has its end before their error.
"""

import re
from collections import deque

from gpupack_agent.mps.folder import Fault

LEFT_SECONDS = 2.0
"""On an H200 the others' error came 0.05 to 0.2 s after the end of the one that caused it."""

_FATAL = re.compile(r"Client \{PID: (\d+), Context: \d+\} encountered a fatal GPU error")
_TORN_DOWN = re.compile(r"Client \{PID: (\d+), Context ID: \d+\} on device \d+ to be torn down")
_LEFT = re.compile(r"Client \{PID: (\d+), Context ID: \d+\} exiting")
_LAST = "client process have a sticky error set"


class LogReader:
    """Reads one daemon's log, line by line."""

    def __init__(self) -> None:
        self._left: deque[tuple[float, int]] = deque(maxlen=64)
        self._clients: dict[int, None] = {}

    def read(self, line: str, *, now: float) -> Fault | None:
        """A fault, once all that the log says of it has been read.

        Args:
            line: the next one.
            now: when it was written, seconds since the epoch.
        """
        if found := _FATAL.search(line) or _TORN_DOWN.search(line):
            self._clients[int(found[1])] = None
        elif not self._clients and (found := _LEFT.search(line)):
            self._left.append((now, int(found[1])))
        elif self._clients and _LAST in line:
            return self._fault(now)
        return None

    def _fault(self, now: float) -> Fault:
        clients, self._clients = tuple(self._clients), {}
        left = {pid: None for at, pid in self._left if now - at <= LEFT_SECONDS}
        return Fault(now, clients, tuple(pid for pid in left if pid not in clients))
