# SPDX-License-Identifier: Apache-2.0
"""The ledger of this machine: a folder with a locked file for each process that holds or waits.

    FOLDER                  locked while somebody looks or writes
    FOLDER/holds-ID.json    who has it locked holds what stands in it
    FOLDER/waits-ID.json    who has it locked waits for its turn
    FOLDER/reserved-NAME.json   holds what stands in it until the time that stands in it

There is no file of all of them: one could be torn by a full disk or a kill, and in a folder of many
users (mode 1777) nobody may replace a file of another's. ADR 45 has the reasons.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from gpupack.errors import LedgerBroken, LedgerBusy, LedgerUnusable
from gpupack.host.locked_file import NEW, READABLE_BY_ALL, LockedFile
from gpupack.host.process_id import boot_id
from gpupack.host.record import Record, decoded

OPEN_TO_ALL: Final = 0o1777
SUFFIX: Final = ".json"
LARGEST_RECORD: Final = 1 << 16
"""Bytes; a process that holds 128 GPUs has some 10,000."""

NOTE: Final = """\
Who holds this machine's GPUs, by gpupack: a file for each process, locked for as long as it lives.
Leave the folder in place while any of them does.
"""

LOCK_SECONDS: Final = 30.0
_RUN_LOCK, _VAR_TMP = Path("/run/lock"), Path("/var/tmp")  # noqa: S108 - sticky, and looked at


def default_folder() -> Path:
    """The same for all users of the machine.

    `/tmp` is another for services with a private one, and what is old there is cleaned away. Where
    an administrator made a folder in /run/lock that all may write, it is that one.
    """
    for found in (_RUN_LOCK / "gpupack", _RUN_LOCK):
        with contextlib.suppress(OSError):
            if stat.S_IMODE(found.lstat().st_mode) == OPEN_TO_ALL:
                return _RUN_LOCK / "gpupack"
    return _VAR_TMP / "gpupack"


class HostFolder:
    """The folder, made where it is not there.

    Args:
        path: on a file system of this machine's own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parsed: dict[str, tuple[bytes, Record]] = {}
        """By ID, as they were last; a reservation's name may come again with another content."""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Have the ledger alone.

        Raises:
            LedgerUnusable: there is no folder that this user can write in.
            LedgerBusy: somebody else has it for longer than LOCK_SECONDS.
        """
        is_current = False
        while not is_current:
            opened = self._open()
            try:
                if is_current := self._lock(opened):
                    yield
            finally:
                # Not by closing alone: a child that another thread forked meanwhile has it open.
                fcntl.flock(opened, fcntl.LOCK_UN)
                os.close(opened)

    def records(self) -> dict[str, Record]:
        """What live processes hold and wait for, by ID; to be called while it is locked.

        Files of processes that are gone are removed, as far as this user may.

        Raises:
            LedgerBroken: what a live process holds cannot be read.
            LedgerUnusable: the folder cannot be.
        """
        found: dict[str, tuple[bytes, Record]] = {}
        before = self._parsed
        try:
            names = os.listdir(self.path)  # noqa: PTH208 - many, while others wait
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error
        for name in sorted(names):
            stem, suffix = os.path.splitext(name)  # noqa: PTH122 - same
            if suffix == SUFFIX and (content := self._read_if_alive(name)) is not None:
                known = before.get(stem)
                if known is None or known[0] != content:
                    known = content, _parsed(self.path / name, content)
                found[stem] = known
        self._parsed = found
        return {stem: record for stem, (_, record) in found.items()}

    def is_own(self, name: str) -> bool:
        """Whether this user wrote the record: what it says of its user is its author's word."""
        try:
            return (self.path / f"{name}{SUFFIX}").lstat().st_uid == os.geteuid()
        except OSError:
            return False

    def add(self, record: Record) -> LockedFile:
        """Write what this process holds or waits for; to be called while it is locked.

        Raises:
            LedgerUnusable: it cannot be written; nothing has changed.
        """
        name = f"{record.kind}-{record.process.pid}-{secrets.token_hex(6)}{SUFFIX}"
        return LockedFile(self.path / name, msgspec.json.encode(record))

    def reserve(self, name: str, record: Record) -> None:
        """Write a reservation, which stays; to be called while it is locked.

        Raises:
            LedgerUnusable: it cannot be written; nothing has changed.
        """
        LockedFile(self.path / f"{name}{SUFFIX}", msgspec.json.encode(record)).leave()

    def cancel(self, name: str) -> None:
        """Remove a reservation; to be called while it is locked.

        Raises:
            LedgerUnusable: it is another user's, who alone may remove it, or root.
        """
        try:
            (self.path / f"{name}{SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            raise LedgerUnusable(
                f"{self.path / name}{SUFFIX}: cannot be removed ({error.strerror}); whoever made "
                "it (`ls -l`) releases it, or root"
            ) from error

    @contextlib.contextmanager
    def watched(self, name: str) -> Iterator[Callable[[], bool]]:
        """Yields what tells whether who wrote this record has ended, or has let go of it."""
        try:
            opened = os.open(
                self.path / f"{name}{SUFFIX}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            )
        except OSError:
            yield lambda: True
            return
        try:
            yield lambda: _locks(opened, fcntl.LOCK_SH)
        finally:
            os.close(opened)

    def _open(self) -> int:
        self._make()
        try:
            return os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error

    def _lock(self, opened: int) -> bool:
        """False: the folder was replaced by another meanwhile."""
        try:
            is_locked = _locks(opened, fcntl.LOCK_EX) or _waits_for(opened)
        except OSError as error:
            why = f"files cannot be locked there ({error.strerror}), as on NFS"
            raise self._unusable(why) from error
        if not is_locked:
            raise LedgerBusy(
                f"{self.path}: another process has had it locked for {LOCK_SECONDS:g} s; see "
                f"`fuser -v {self.path}`, and end it if it was stopped"
            )
        try:
            return os.path.samestat(os.fstat(opened), self.path.stat())
        except FileNotFoundError:
            return False

    def _make(self) -> None:
        """As one step: another user never finds it closed to him."""
        try:
            try:
                there = self.path.lstat()
            except FileNotFoundError:
                self._make_anew()
                there = self.path.lstat()
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error
        if not stat.S_ISDIR(there.st_mode):
            raise self._unusable("it is no folder")
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            raise self._unusable(f"user {os.getuid()} cannot write in it")

    def _make_anew(self) -> None:
        """Never empty: an empty one would be replaced by who makes it at the same moment."""
        new = self.path.with_name(f"{NEW}{self.path.name}-{secrets.token_hex(6)}")
        note = new / "README"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new.mkdir()
            note.write_text(NOTE)
            note.chmod(READABLE_BY_ALL)
            new.chmod(OPEN_TO_ALL)
            new.rename(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                note.unlink()
                new.rmdir()
            if not self.path.exists():
                raise self._unusable(error.strerror or str(error)) from error

    def _unusable(self, why: str) -> LedgerUnusable:
        return LedgerUnusable(
            f"{self.path}: {why}; make it by `install -d -m 1777 {self.path}`, or name another "
            "folder in GPUPACK_HOST_FOLDER, the same for all processes"
        )

    def _record(self, name: str, content: bytes) -> Record | None:
        """What stands there, read anew where it has changed; None: nobody of us wrote it."""
        known = self._parsed.get(name.removesuffix(SUFFIX))
        if known is not None and known[0] == content:
            return known[1]
        try:
            return decoded(content)
        except ValueError:
            return None

    def _read_if_alive(self, name: str) -> bytes | None:
        """None: nobody has it locked any more, or it is no file."""
        path = f"{self.path}/{name}"
        try:
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                raise self._unusable(error.strerror or str(error)) from error
            raise LedgerBroken(
                f"{path}: cannot be looked at ({error.strerror}), so nobody knows whether it is of "
                "a live process; whoever made it (`ls -l`) removes it, or root"
            ) from error
        try:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return None
            locked, content = not _locks(opened, fcntl.LOCK_SH), os.read(opened, LARGEST_RECORD)
            if _counts(self._record(name, content), locked=locked):
                return content
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - as above
            return None
        finally:
            os.close(opened)


def _locks(opened: int, kind: int) -> bool:
    try:
        fcntl.flock(opened, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _waits_for(opened: int) -> bool:
    """Lock it as soon as it is free; False: it is not, after LOCK_SECONDS.

    In a thread, since the kernel's queue is fair and has no time limit. One that is left behind has
    the file open for as long as its call lasts, and no longer.

    Raises:
        OSError: it cannot be locked.
    """
    failed: list[OSError] = []

    def lock() -> None:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)
        except OSError as error:
            failed.append(error)

    waiting = threading.Thread(target=lock, daemon=True)
    waiting.start()
    waiting.join(LOCK_SECONDS)
    if failed:
        raise failed[0]
    return not waiting.is_alive()


def _counts(record: Record | None, *, locked: bool) -> bool:
    """Whether it is held, by who has it locked or is not quite gone; or reserved, by its time.

    Whoever may read a reservation can lock it, which makes it last no longer.
    """
    if record is None:
        return locked
    if record.reserved_until is not None:
        return record.is_reserved
    return locked or record.counts_unlocked


def _parsed(path: Path, content: bytes) -> Record:
    try:
        record = decoded(content)
    except ValueError as error:
        raise LedgerBroken(
            f"{path}: a live process has it locked, and it cannot be read ({error}); nothing is "
            f"given out until that process ends: see `fuser -v {path}`"
        ) from error
    if record.process.boot != boot_id():
        raise LedgerBroken(
            f"{path}: it is of another machine; give each machine a folder of its own in "
            "GPUPACK_HOST_FOLDER"
        )
    return record
