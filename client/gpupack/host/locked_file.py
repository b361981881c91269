# SPDX-License-Identifier: Apache-2.0
"""A file that this process keeps locked for as long as it lives.

The lock is flock's. It belongs to the open file, so that the kernel drops it when the last process
with the open file ends, however it ends. PIDs, which are reused and differ in containers, play no
role. A file is locked before it gets its name, so that a visible unlocked file belongs to a process
that has ended.

A forked child would keep its parent's lock beyond the parent's end: it closes the file at once. A
child that has to keep the lock gets the file through `pass_fds`. POSIX record locks, which are not
inherited, are not used: they are lost when *any* open file of the same inode is closed, for example
after reading it.
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
    """A locked file that is written once, either completely or not at all."""

    def __init__(self, path: Path, content: bytes) -> None:
        """Write the file.

        Args:
            path: path of the new file; the caller has locked its folder.
            content: content of the file.

        Raises:
            LedgerUnusable: it cannot be written; no file remains.
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
                f"{path}: cannot be written ({error.strerror}); free space there, or set another "
                "folder in GPUPACK_HOST_FOLDER, the same for all processes"
            ) from error
        _of_this_process.add(self)

    @property
    def descriptor(self) -> int | None:
        """The open file; None: it is closed."""
        return self._open

    def remove(self) -> None:
        """Remove the file; a second call, and a call in a forked child, does nothing."""
        if self._open is None or self._pid != os.getpid():
            return
        try:
            self.path.unlink()
        except OSError:
            self._empty(self._open)
        self._close()

    @staticmethod
    def _empty(opened: int) -> None:
        """Empty a file that this process may not remove, for example after dropping root.

        It is unlocked first: a locked empty file would mean a live process with a broken record.
        """
        with contextlib.suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_UN)
            os.ftruncate(opened, 0)

    def unlock(self) -> None:
        """Unlock the file, and leave it in place."""
        self._close()

    def _close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            os.close(opened)

    @staticmethod
    def forget_in_child() -> None:
        """Close all files in a forked child, which holds nothing."""
        for each in list(_of_this_process):
            each._close()  # noqa: SLF001 - its own class
        _of_this_process.clear()


os.register_at_fork(after_in_child=LockedFile.forget_in_child)


def _write(opened: int, content: bytes) -> None:
    """Write without fsync: after a machine crash no process of these files is alive."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(opened, rest) :]
