# SPDX-License-Identifier: Apache-2.0
"""Whether all processes of a worker that were told to end have saved before they were gone.

The launcher hears of a signal by an exception that says nothing about its processes, which may have
been killed while they saved. So each leaves a file when it begins to train and another when it is
done or has saved, in a folder that the launcher looks at.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from gpupack_workloads.errors import Interrupted

BEGUN, LEFT = "begun-", "left-"


@contextlib.contextmanager
def leaving(folder: Path | None, process: int) -> Iterator[None]:
    """Note that a process has something to save, and that it has done so."""
    note(folder, BEGUN, process)
    try:
        yield
    except Interrupted:
        note(folder, LEFT, process)
        raise
    note(folder, LEFT, process)


def note(folder: Path | None, word: str, process: int) -> None:
    """Leave a file."""
    if folder is not None:
        (folder / f"{word}{process}").touch()


def missing(folder: Path) -> list[str]:
    """Return the processes that had something to save and have not said that they did."""
    begun, left = (
        {path.name.removeprefix(word) for path in folder.glob(f"{word}*")} for word in (BEGUN, LEFT)
    )
    return sorted(begun - left)
