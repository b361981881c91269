# SPDX-License-Identifier: Apache-2.0
"""Ports for processes that a test starts with a port that is known before they listen."""

import contextlib
import itertools
import os
import random
import socket

PORTS_OF_A_WORKER = 1000
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_FIRST = 12_000 + _WORKER % 16 * PORTS_OF_A_WORKER
_turns = itertools.count(random.SystemRandom().randrange(PORTS_OF_A_WORKER))


def free_port():
    """Return a port that no other worker of pytest takes and that the kernel assigns to no process.

    The kernel assigns ports from 32768 on to processes that connect or listen on port 0.
    """
    for turn in itertools.islice(_turns, PORTS_OF_A_WORKER):
        port = _FIRST + turn % PORTS_OF_A_WORKER
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise RuntimeError(f"no port is free from {_FIRST} to {_FIRST + PORTS_OF_A_WORKER - 1}")
