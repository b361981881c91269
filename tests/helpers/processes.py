# SPDX-License-Identifier: Apache-2.0
"""Runs commands as a user does: in a process of their own, in whatever folder."""

import os
import pathlib
import subprocess
import sys
import time


def environment(**more):
    """Of a process that finds our packages where this one finds them, installed or not."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


def run_process(command, *, cwd=None, timeout=60, **more):
    """To its end; `more`: variables of its environment."""
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
    """Whether it runs: one that has ended and was not asked for its status does not."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ends(pid, seconds=30.0):
    """Whether it runs no longer, or not after so long: a signal takes a moment to be heard."""
    until = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
