# SPDX-License-Identifier: Apache-2.0
"""The identity of a process, although its PID may be reused.

A process that is killed loses its locks while it ends, in no defined order: possibly before the
driver has freed its memory on the GPUs. Until it is gone it counts as alive. For a process in
another PID namespace only the lock is known.
"""

import functools
import os
from pathlib import Path
from typing import Final

import msgspec

PROC: Final = Path("/proc")
BOOT: Final = PROC / "sys/kernel/random/boot_id"
ENDED: Final = frozenset({"Z", "X"})
"""States of a thread that has released its files and memory."""

_STATE, _START = 0, 19
"""Positions of fields in /proc/PID/stat, counted from the state."""


class ProcessId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process of one machine.

    Attributes:
        pid: PID in its own PID namespace.
        start_ticks: its start, in ticks since boot; 0: unknown.
        namespace: namespace of its PID; empty: unknown.
        boot: boot ID of the machine; empty: unknown.
    """

    pid: int
    start_ticks: int
    namespace: str
    boot: str

    def is_alive(self) -> bool:
        """Return whether it runs here or is ending; False where that is unknown."""
        if (self.boot, self.namespace) != (boot_id(), _namespace()):
            return False
        stat = _stat(PROC / str(self.pid))
        if not stat or int(stat[_START]) != self.start_ticks:
            return False
        threads = (_stat(each) for each in _threads(self.pid))
        return any(each[_STATE] not in ENDED for each in threads if each)


def this_process() -> ProcessId:
    """Return the identity of the calling process."""
    stat = _stat(PROC / "self")
    start = int(stat[_START]) if stat else 0
    return ProcessId(os.getpid(), start, _namespace(), boot_id())


@functools.cache
def boot_id() -> str:
    """Return the boot ID, which all processes share until a reboot; empty where it is unknown."""
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
    """Return fields after the name, which may have blanks and brackets; empty: it is gone."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
