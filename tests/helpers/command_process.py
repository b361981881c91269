# SPDX-License-Identifier: Apache-2.0
"""A command as a user has it: a process of its own on a terminal, in a pipe or in a closed pipe."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass

CLI = [sys.executable, "-c", "from gpupack_cli.main import main; main()"]
SIMULATOR = [sys.executable, "-m", "gpupack_simulator"]
SECONDS = 120
"""For which a busy machine may take."""


@dataclass(frozen=True)
class Ended:
    """Exit status and output of a process."""

    status: int
    out: str
    err: str = ""

    @property
    def lines(self):
        return self.out.splitlines()


def environment(**more):
    """Return the smallest environment that starts it; the packages are those of the checkout."""
    bare = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TERM": "xterm"}
    return bare | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | more


def in_pipe(command, **environ):
    """Both streams are pipes that are read to their end."""
    done = subprocess.run(
        command,
        env=environment(**environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def in_closed_pipe(command, *, stream="stdout", **environ):
    """Run with one stream as a pipe whose reader has closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    other = "stderr" if stream == "stdout" else "stdout"
    try:
        done = subprocess.run(
            command,
            env=environment(**environ),
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
            **{stream: writing, other: subprocess.PIPE},
        )
    finally:
        os.close(writing)
    return Ended(done.returncode, (done.stdout or b"").decode(), (done.stderr or b"").decode())


def on_terminal(command, columns, **environ):
    """All three streams are one terminal of so many columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        command, env=environment(**environ), stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        shown = b""
        # Linux answers EIO when the last process of the terminal has gone.
        with contextlib.suppress(OSError):
            while part := os.read(master, 1 << 16):
                shown += part
        os.close(master)
        status = process.wait(SECONDS)
    return Ended(status, shown.decode(errors="replace").replace("\r\n", "\n"))
