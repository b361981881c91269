# SPDX-License-Identifier: Apache-2.0
"""Handles SIGTERM: all ranks agree on it after a step, save, and leave.

A rank that left at once would leave the others waiting for it in a collective. The kubelet signals
the workers of a gang one by one, if it signals more than one at all, so the one that got the signal
tells the others with the next loss.

The launcher hears of a signal by an exception that says nothing about its processes, which may have
been killed while they saved. So each leaves a file when it begins to train and another when it is
done or has saved, in a folder that the launcher looks at.
"""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from gpupack_workloads.errors import Interrupted


class Stop:
    """Whether a signal asked this process to end."""

    def __init__(self) -> None:
        self.requested = False
        self._before: object = None

    def __enter__(self) -> Self:
        """Take the signal."""
        self._before = signal.signal(signal.SIGTERM, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the signal's handler."""
        signal.signal(signal.SIGTERM, self._before)  # type: ignore[arg-type]

    def _remember(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requested = True


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
