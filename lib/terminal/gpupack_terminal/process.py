# SPDX-License-Identifier: Apache-2.0
"""Runs a command on guarded streams, and says what it ends with when nothing can be written."""

import contextlib
import sys
from collections.abc import Callable
from typing import Final

from gpupack_terminal.streams import (
    STDERR,
    STDOUT,
    CannotWrite,
    OutputEnded,
    PipeClosed,
    guard,
)

PIPE_CLOSED: Final = 141
"""128 and SIGPIPE: what a shell sees of kubectl, ls and cat. A command that was cut off has not
succeeded, and it says nothing: its reader has what it wanted."""

CANNOT_WRITE: Final = 74
"""EX_IOERR of sysexits.h."""


def run(command: Callable[[], int], *, program: str) -> int:
    """Run a command as a process; answers its exit status.

    Under a test that has replaced the streams they stay as they are.

    Args:
        command: answers its exit status.
        program: as messages name it.
    """
    if sys.stdout is sys.__stdout__:
        sys.stdout = guard(sys.stdout, STDOUT, "stdout")
    if sys.stderr is sys.__stderr__:
        sys.stderr = guard(sys.stderr, STDERR, "stderr")
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    except OutputEnded as error:
        return exit_status(error, program=program)


def exit_status(error: OutputEnded, *, program: str) -> int:
    """End on an output that ended: without a word for a pipe, with one for a full disk."""
    if isinstance(error, PipeClosed):
        return PIPE_CLOSED
    assert isinstance(error, CannotWrite)  # noqa: S101 - there are no others
    with contextlib.suppress(OutputEnded):
        sys.stderr.write(f"{program}: {error}\n")
    return CANNOT_WRITE
