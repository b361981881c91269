# SPDX-License-Identifier: Apache-2.0
"""The folder of the host by which agent and supervisor know each other.

    alive               touched by the supervisor while it lives
    wanted/UUID         by the agent: limited shares of this GPU are held, or are about to be
    gpus/UUID/control   by the daemon: the socket that containers get, alone of all that is there
    gpus/UUID/ending    by the supervisor: its daemon has ended, or is about to
    faults/UUID         by the supervisor: what its log said of clients that failed

It is in memory: after a boot there is nothing in it, as there are no processes.
"""

import contextlib
import pathlib
import re
import shutil
import time
from collections.abc import Iterable

import msgspec

HOST_FOLDER = pathlib.Path("/run/gpupack/mps")
"""The same in both pods and on the host: the daemon's sockets go by their paths."""

STALE_SECONDS = 30.0
"""So long after its last sign of life no limited shares are promised; it gives one a second."""

KEPT_SECONDS = 40.0
"""A container start that waits for a daemon holds nothing yet; it waits for less."""

MAX_FAULTS = 32
"""Of one GPU; the older ones have been told."""

_UUID = re.compile(r"[A-Za-z0-9-]{1,64}")


class Fault(msgspec.Struct, frozen=True):
    """Clients that failed together.

    Attributes:
        at: seconds since the epoch.
        clients: PIDs of those that the fault took along, in the host's numbers.
        left: PIDs of those that were gone within the seconds before.
    """

    at: float
    clients: tuple[int, ...]
    left: tuple[int, ...] = ()


class MpsFolder:
    """Both sides of it."""

    def __init__(self, path: pathlib.Path = HOST_FOLDER) -> None:
        self._path = path

    def is_served(self) -> bool:
        """Whether a supervisor lives here."""
        with contextlib.suppress(OSError):
            return time.time() - (self._path / "alive").stat().st_mtime < STALE_SECONDS
        return False

    def beat(self) -> None:
        """The supervisor lives."""
        self._path.mkdir(parents=True, exist_ok=True)
        (self._path / "alive").touch()

    def rest(self) -> None:
        """The supervisor ends."""
        (self._path / "alive").unlink(missing_ok=True)

    def want(self, uuid: str) -> None:
        """Have a daemon for this GPU."""
        folder = self._path / "wanted"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _named(uuid)).touch()

    def retain(self, uuids: Iterable[str]) -> None:
        """No other GPU needs one, but for those that were wanted just now."""
        for uuid in self.wanted() - set(uuids):
            path = self._path / "wanted" / uuid
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime >= KEPT_SECONDS:
                    path.unlink()

    def wanted(self) -> set[str]:
        """The GPUs that need one."""
        try:
            found = {path.name for path in (self._path / "wanted").iterdir()}
        except FileNotFoundError:
            return set()
        return set(filter(_UUID.fullmatch, found))

    def pipe(self, uuid: str) -> pathlib.Path:
        """Where the daemon of a GPU keeps its sockets."""
        return self._path / "gpus" / _named(uuid)

    def control(self, uuid: str) -> pathlib.Path:
        """The socket by which programs find the daemon."""
        return self.pipe(uuid) / "control"

    def is_ready(self, uuid: str) -> bool:
        """Whether programs find it, and will: who wants it first, and then asks, is not left out.

        The supervisor says that the daemon ends before it looks a last time who wants it.
        """
        runs = self.is_served() and self.control(uuid).is_socket()
        return runs and not self._ending(uuid).exists()

    def _ending(self, uuid: str) -> pathlib.Path:
        return self.pipe(uuid) / "ending"

    def ends(self, uuid: str) -> None:
        """Its daemon has ended, or is about to."""
        self._ending(uuid).touch()

    def goes_on(self, uuid: str) -> None:
        """It does not end after all."""
        self._ending(uuid).unlink(missing_ok=True)

    def clear(self) -> None:
        """No daemon runs: those of a supervisor that was killed ended with it."""
        shutil.rmtree(self._path / "gpus", ignore_errors=True)

    def record(self, uuid: str, fault: Fault) -> None:
        """Write a fault down."""
        path = self._faults(uuid)
        path.parent.mkdir(exist_ok=True)
        kept = (*self.faults(uuid), fault)[-MAX_FAULTS:]
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(b"\n".join(map(msgspec.json.encode, kept)))
        temporary.replace(path)

    def _faults(self, uuid: str) -> pathlib.Path:
        """Outlives the daemon: those whom it served may be gone before they are told."""
        return self._path / "faults" / _named(uuid)

    def faults(self, uuid: str) -> tuple[Fault, ...]:
        """Those that were written down, the oldest first; what cannot be read is none."""
        try:
            lines = self._faults(uuid).read_bytes().splitlines()
            return tuple(msgspec.json.decode(line, type=Fault) for line in lines)
        except (OSError, msgspec.MsgspecError):
            return ()


def _named(uuid: str) -> str:
    if not _UUID.fullmatch(uuid):
        raise ValueError(f"{uuid!r} is no GPU's UUID")
    return uuid
