# SPDX-License-Identifier: Apache-2.0
"""A file that this process has locked for as long as it lives.

The lock is flock's: it belongs to the open file, so the kernel drops it when the last process that
has the file open ends, however it ends; a PID that is used again or is another in another container
means nothing. A file is locked before it gets its name, so one that can be seen and is not locked
is of a process that is gone.

A forked child would keep its parent's lock beyond the parent's end: it closes the file at once. A
child that shall keep it is given it by `pass_fds`. POSIX record locks, which are not inherited,
were rejected: they go when *any* open file of the same inode is closed, as looking at it does.
"""

import contextlib
import fcntl
import os
import weakref
from pathlib import Path
from typing import Final

from gpupack.errors import LedgerUnusable

READABLE_BY_ALL: Final = 0o644
NEW: Final = ".new-"

_of_this_process: "weakref.WeakSet[LockedFile]" = weakref.WeakSet()


class LockedFile:
    """Written once, whole or not at all, and locked."""

    def __init__(self, path: Path, content: bytes) -> None:
        """Write it.

        Args:
            path: where nothing is yet; its folder is locked by the caller.
            content: of the file.

        Raises:
            LedgerUnusable: it cannot be written; nothing is left behind.
        """
        self.path = path
        self._pid = os.getpid()
        new = path.with_name(f"{NEW}{path.name}")
        self._open: int | None = None
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._open = os.open(new, flags, READABLE_BY_ALL)
            fcntl.flock(self._open, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(self._open, READABLE_BY_ALL)
            _write(self._open, content)
            new.rename(path)
        except BaseException as error:
            with contextlib.suppress(OSError):
                new.unlink()
            if not isinstance(error, OSError):  # interrupted, perhaps after the rename
                with contextlib.suppress(OSError):
                    path.unlink()
            self._close()
            if not isinstance(error, OSError):
                raise
            raise LedgerUnusable(
                f"{path}: cannot be written ({error.strerror}); free space there, or name another "
                "folder in GPUPACK_HOST_FOLDER, the same for all processes"
            ) from error
        _of_this_process.add(self)

    @property
    def descriptor(self) -> int | None:
        """The open file; None: it is let go."""
        return self._open

    def remove(self) -> None:
        """Let go of it; a second time, and in a forked child, it does nothing."""
        if self._open is None or self._pid != os.getpid():
            return
        try:
            self.path.unlink()
        except OSError:
            self._empty(self._open)
        self._close()

    @staticmethod
    def _empty(opened: int) -> None:
        """For who may not remove it, as one that gave up being root: it names no process then.

        Unlocked first: a file that is locked and empty would be a live process's that is broken.
        """
        with contextlib.suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_UN)
            os.ftruncate(opened, 0)

    def leave(self) -> None:
        """Unlock it, and let it stay."""
        self._close()

    def _close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            os.close(opened)

    @staticmethod
    def forget_in_child() -> None:
        """A forked child holds nothing."""
        for each in list(_of_this_process):
            each._close()  # noqa: SLF001 - its own class
        _of_this_process.clear()


os.register_at_fork(after_in_child=LockedFile.forget_in_child)


def _write(opened: int, content: bytes) -> None:
    """Without fsync: what a machine that stops leaves on its disk is of nobody who lives."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(opened, rest) :]
