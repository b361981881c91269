# SPDX-License-Identifier: Apache-2.0
"""Checks folders of the command line before any work."""

import contextlib
import os
from pathlib import Path

from gpupack_workloads.errors import BadArgument

# A block: less may find room in what a volume keeps for a file's name.
PROBE = bytes(4096)


def usable_folder(path: Path) -> Path:
    """Make a folder, unless it is there, and try to write to it.

    Trying is the only sure way: permissions say nothing about a volume that is full or read-only.

    Raises:
        BadArgument: it cannot be made or written to, or no result could name it.
    """
    require_utf8(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadArgument(f"the folder {path} cannot be made: {error.strerror}") from error
    probe = path / f".probe.{os.getpid()}"
    try:
        write_through(probe)
    except OSError as error:
        raise BadArgument(f"the folder {path} cannot be written to: {error.strerror}") from error
    finally:
        # Workers in pods of their own may have the same process number.
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    return path


def write_through(path: Path) -> None:
    """Write a file down to its volume: a full one may still take an empty file, or keep it back.

    Raises:
        OSError: it cannot be written.
    """
    with path.open("wb") as file:
        file.write(PROBE)
        file.flush()
        os.fsync(file.fileno())


def require_utf8(path: Path) -> None:
    """Make sure that a path is text, as results are.

    Raises:
        BadArgument: it is not.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise BadArgument(f"the folder {os.fsencode(path)!r} is not UTF-8: name another") from error
