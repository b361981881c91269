# SPDX-License-Identifier: Apache-2.0
"""Folders that a user names, made sure of before any work."""

import os
from pathlib import Path

from gpupack_workloads.errors import BadArgument


def usable_folder(path: Path) -> Path:
    """Make a folder, unless it is there, and try to write to it.

    Trying is the only sure way: permissions say nothing about a volume that is full or read-only.

    Raises:
        BadArgument: it cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadArgument(f"the folder {path} cannot be made: {error.strerror}") from error
    probe = path / f".probe.{os.getpid()}"
    try:
        probe.touch()
        # Workers in pods of their own may have the same process number.
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise BadArgument(f"the folder {path} cannot be written to: {error.strerror}") from error
    return path
