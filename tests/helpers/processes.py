# SPDX-License-Identifier: Apache-2.0
"""Runs commands as a user does: in a process of their own, in whatever folder."""

import os
import pathlib
import subprocess
import sys
import time


def environment(**more):
    """Return the environment of a process that finds our packages where this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


def run_process(command, *, cwd=None, timeout=60, **more):
    """Run a command to its end; `more`: variables of its environment."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def is_alive(pid):
    """Return whether a process runs: one that has ended and was not waited for does not."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ends(pid, seconds=30.0):
    """Return whether the process ends within so many seconds: a signal takes a moment."""
    until = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
