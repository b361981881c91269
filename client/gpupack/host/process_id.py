# SPDX-License-Identifier: Apache-2.0
"""Which process it is, though its PID may be used again.

A process that is killed loses its locks while it ends, in no order that the kernel promises:
perhaps before the driver has taken its memory off the GPUs. Until it is gone it counts as alive; of
one in another PID namespace only the lock is known.
"""

import functools
import os
from pathlib import Path
from typing import Final

import msgspec

PROC: Final = Path("/proc")
BOOT: Final = PROC / "sys/kernel/random/boot_id"
ENDED: Final = frozenset({"Z", "X"})
"""States of a thread that has let go of its files and memory."""

_STATE, _START = 0, 19
"""Places of fields in /proc/PID/stat, from the state on."""


class ProcessId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process of one machine.

    Attributes:
        pid: as its own PID namespace counts.
        start_ticks: when it began, since the machine did; 0: nobody tells.
        namespace: of its PID; empty: nobody tells.
        boot: of the machine; empty: nobody tells.
    """

    pid: int
    start_ticks: int
    namespace: str
    boot: str

    def is_there(self) -> bool:
        """Whether it runs here, or is still ending. False where that cannot be told."""
        if (self.boot, self.namespace) != (boot_id(), _namespace()):
            return False
        stat = _stat(PROC / str(self.pid))
        if not stat or int(stat[_START]) != self.start_ticks:
            return False
        threads = (_stat(each) for each in _threads(self.pid))
        return any(each[_STATE] not in ENDED for each in threads if each)


def this_process() -> ProcessId:
    """Of the caller."""
    stat = _stat(PROC / "self")
    start = int(stat[_START]) if stat else 0
    return ProcessId(os.getpid(), start, _namespace(), boot_id())


@functools.cache
def boot_id() -> str:
    """The same for all processes until the machine starts anew; empty where nobody tells."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str((PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def _threads(pid: int) -> list[Path]:
    try:
        return list((PROC / str(pid) / "task").iterdir())
    except OSError:
        return []


def _stat(folder: Path) -> list[str]:
    """Fields after the name, which may have blanks and brackets; empty: it is gone."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
