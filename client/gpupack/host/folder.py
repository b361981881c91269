# SPDX-License-Identifier: Apache-2.0
"""The ledger of this machine: a folder with a locked file for each process that holds or waits.

    FOLDER                      locked for every read or write
    FOLDER/holds-ID.json        the process with the lock holds the file's GPUs
    FOLDER/waits-ID.json        the process with the lock waits for its turn
    FOLDER/reserved-NAME.json   holds the file's GPUs until the time in it

There is no common file: a full disk or a kill could leave it half written, and in a folder of many
users (mode 1777) no user may replace another user's file. ADR 45 has the reasons.
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
from gpupack.host.record import Record, decode_record

WORLD_WRITABLE: Final = 0o1777
SUFFIX: Final = ".json"
MAX_RECORD_BYTES: Final = 1 << 16
"""Maximum bytes of a record; a process that holds 128 GPUs has some 10,000."""

NOTE: Final = """\
The holders of this machine's GPUs, by gpupack: a file for each process, locked while it lives.
Do not remove the folder while one of the processes runs.
"""

LOCK_SECONDS: Final = 30.0
_RUN_LOCK, _VAR_TMP = Path("/run/lock"), Path("/var/tmp")  # noqa: S108 - sticky, and looked at


def default_folder() -> Path:
    """Return the folder that all users of the machine share.

    `/tmp` differs for services with a private one, and old files there are removed. Where an
    administrator made a folder in /run/lock that all may write to, it is that one.
    """
    for found in (_RUN_LOCK / "gpupack", _RUN_LOCK):
        with contextlib.suppress(OSError):
            if stat.S_IMODE(found.lstat().st_mode) == WORLD_WRITABLE:
                return _RUN_LOCK / "gpupack"
    return _VAR_TMP / "gpupack"


class HostFolder:
    """The ledger's folder, which is created where it does not exist.

    Args:
        path: path on a local file system of this machine.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parsed: dict[str, tuple[bytes, Record]] = {}
        """The last content by ID; a reservation's name may return with another content."""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the ledger.

        Raises:
            LedgerUnusable: there is no folder that this user can write to.
            LedgerBusy: another process has locked it for longer than LOCK_SECONDS.
        """
        is_current = False
        while not is_current:
            opened = self._open()
            try:
                if is_current := self._lock(opened):
                    yield
            finally:
                # Closing alone is not enough: a child that another thread has forked has it open.
                fcntl.flock(opened, fcntl.LOCK_UN)
                os.close(opened)

    def records(self) -> dict[str, Record]:
        """Return what live processes hold and wait for, by ID; call it while the ledger is locked.

        Files of processes that have ended are removed, as far as this user may.

        Raises:
            LedgerBroken: a live process's record cannot be read.
            LedgerUnusable: the folder cannot be read.
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
        """Return whether this user wrote the record; the user in it is only its author's claim."""
        try:
            return (self.path / f"{name}{SUFFIX}").lstat().st_uid == os.geteuid()
        except OSError:
            return False

    def add(self, record: Record) -> LockedFile:
        """Write what this process holds or waits for; call it while the ledger is locked.

        Raises:
            LedgerUnusable: it cannot be written; nothing has changed.
        """
        name = f"{record.kind}-{record.process.pid}-{secrets.token_hex(6)}{SUFFIX}"
        return LockedFile(self.path / name, msgspec.json.encode(record))

    def reserve(self, name: str, record: Record) -> None:
        """Write a reservation, which stays; call it while the ledger is locked.

        Raises:
            LedgerUnusable: it cannot be written; nothing has changed.
        """
        LockedFile(self.path / f"{name}{SUFFIX}", msgspec.json.encode(record)).unlock()

    def cancel(self, name: str) -> None:
        """Remove a reservation; call it while the ledger is locked.

        Raises:
            LedgerUnusable: it belongs to another user; only that user or root may remove it.
        """
        try:
            (self.path / f"{name}{SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            raise LedgerUnusable(
                f"{self.path / name}{SUFFIX}: cannot be removed ({error.strerror}); its owner "
                "(`ls -l`) or root can release it"
            ) from error

    @contextlib.contextmanager
    def watch(self, name: str) -> Iterator[Callable[[], bool]]:
        """Yield a function that returns whether the record's process has ended or released it."""
        try:
            opened = os.open(
                self.path / f"{name}{SUFFIX}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            )
        except OSError:
            yield lambda: True
            return
        try:
            yield lambda: _try_lock(opened, fcntl.LOCK_SH)
        finally:
            os.close(opened)

    def _open(self) -> int:
        self._ensure_exists()
        try:
            return os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error

    def _lock(self, opened: int) -> bool:
        """Lock the folder; return False where it has been replaced by another."""
        try:
            is_locked = _try_lock(opened, fcntl.LOCK_EX) or _wait_for_lock(opened)
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

    def _ensure_exists(self) -> None:
        """Create the folder in one step, so that it is never closed to another user."""
        try:
            try:
                status = self.path.lstat()
            except FileNotFoundError:
                self._create()
                status = self.path.lstat()
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error
        if not stat.S_ISDIR(status.st_mode):
            raise self._unusable("it is not a folder")
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            raise self._unusable(f"user {os.getuid()} cannot write in it")

    def _create(self) -> None:
        """Create the folder with a file in it: a concurrent creation could replace an empty one."""
        new = self.path.with_name(f"{NEW}{self.path.name}-{secrets.token_hex(6)}")
        note = new / "README"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new.mkdir()
            note.write_text(NOTE)
            note.chmod(READABLE_BY_ALL)
            new.chmod(WORLD_WRITABLE)
            new.rename(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                note.unlink()
                new.rmdir()
            if not self.path.exists():
                raise self._unusable(error.strerror or str(error)) from error

    def _unusable(self, why: str) -> LedgerUnusable:
        return LedgerUnusable(
            f"{self.path}: {why}; create it by `install -d -m 1777 {self.path}`, or set another "
            "folder in GPUPACK_HOST_FOLDER, the same for all processes"
        )

    def _record(self, name: str, content: bytes) -> Record | None:
        """Return the record, parsed again where it has changed; None: gpupack did not write it."""
        known = self._parsed.get(name.removesuffix(SUFFIX))
        if known is not None and known[0] == content:
            return known[1]
        try:
            return decode_record(content)
        except ValueError:
            return None

    def _read_if_alive(self, name: str) -> bytes | None:
        """Return the file's content; None: it is no longer locked, or is not a file."""
        path = f"{self.path}/{name}"
        try:
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                raise self._unusable(error.strerror or str(error)) from error
            raise LedgerBroken(
                f"{path}: cannot be read ({error.strerror}), so it may be of a live process; its "
                "owner (`ls -l`) or root has to remove it"
            ) from error
        try:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return None
            locked, content = (
                not _try_lock(opened, fcntl.LOCK_SH),
                os.read(opened, MAX_RECORD_BYTES),
            )
            if _is_held(self._record(name, content), locked=locked):
                return content
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - as above
            return None
        finally:
            os.close(opened)


def _try_lock(opened: int, kind: int) -> bool:
    try:
        fcntl.flock(opened, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_lock(opened: int) -> bool:
    """Lock the file as soon as it is free; return False where it is not after LOCK_SECONDS.

    This runs in a thread, since the kernel's queue is fair and has no time limit. An abandoned
    thread has the file open only for as long as its call lasts.

    Raises:
        OSError: the file cannot be locked.
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


def _is_held(record: Record | None, *, locked: bool) -> bool:
    """Return whether a record is in effect: by its lock, its live process, or its time.

    Every user who may read a reservation can lock it, which does not extend it.
    """
    if record is None:
        return locked
    if record.reserved_until is not None:
        return record.is_reserved
    return locked or record.counts_unlocked


def _parsed(path: Path, content: bytes) -> Record:
    try:
        record = decode_record(content)
    except ValueError as error:
        raise LedgerBroken(
            f"{path}: a live process has it locked, and it cannot be read ({error}); no GPU is "
            f"allocated until that process ends: see `fuser -v {path}`"
        ) from error
    if record.process.boot != boot_id():
        raise LedgerBroken(
            f"{path}: it is of another machine; set another folder for each machine in "
            "GPUPACK_HOST_FOLDER"
        )
    return record
