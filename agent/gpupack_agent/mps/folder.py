# SPDX-License-Identifier: Apache-2.0
"""The folder of the host through which agent and supervisor communicate.

    alive               supervisor: touched while it lives
    wanted/UUID         agent: pods hold limited shares of this GPU, or will soon
    gpus/UUID/control   daemon: its socket for programs, the only file there that containers get
    gpus/UUID/ending    supervisor: the daemon has ended, or will soon
    faults/UUID         supervisor: clients that failed together, from the daemon's log

The folder is in memory: after a boot it is empty, and no processes run.
"""

import contextlib
import pathlib
import re
import shutil
import time
from collections.abc import Iterable

import msgspec

HOST_FOLDER = pathlib.Path("/run/gpupack/mps")
"""The folder's path, the same in both pods and on the host, because sockets are found by paths."""

STALE_SECONDS = 30.0
"""The age of the supervisor's last sign of life from which it counts as gone. It writes one in each
round, about twice a second."""

MIN_REQUEST_SECONDS = 40.0
"""The least time for which a requested daemon stays: a container start that waits for it holds
nothing yet, and waits for less time."""

MAX_FAULTS = 32
"""The largest number of recorded faults of one GPU; older ones have been reported."""

_UUID = re.compile(r"[A-Za-z0-9-]{1,64}")


class Fault(msgspec.Struct, frozen=True):
    """Clients that failed together.

    Attributes:
        at: the time, seconds since the epoch.
        clients: PIDs of the clients that failed, in the host's namespace.
        exited: PIDs of the clients that ended within the seconds before.
    """

    at: float
    clients: tuple[int, ...]
    exited: tuple[int, ...] = ()


class MpsFolder:
    """The folder, with the operations of agent and supervisor."""

    def __init__(self, path: pathlib.Path = HOST_FOLDER) -> None:
        self._path = path

    def is_served(self) -> bool:
        """Tell whether a supervisor lives on this host."""
        with contextlib.suppress(OSError):
            return time.time() - (self._path / "alive").stat().st_mtime < STALE_SECONDS
        return False

    def write_sign_of_life(self) -> None:
        """Write the supervisor's sign of life."""
        self._path.mkdir(parents=True, exist_ok=True)
        (self._path / "alive").touch()

    def remove_sign_of_life(self) -> None:
        """Remove the supervisor's sign of life."""
        (self._path / "alive").unlink(missing_ok=True)

    def request(self, uuid: str) -> None:
        """Request a daemon for this GPU."""
        folder = self._path / "wanted"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _check_uuid(uuid)).touch()

    def retain(self, uuids: Iterable[str]) -> None:
        """Withdraw the requests for all other GPUs, except those requested just now."""
        for uuid in self.requested() - set(uuids):
            path = self._path / "wanted" / uuid
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime >= MIN_REQUEST_SECONDS:
                    path.unlink()

    def requested(self) -> set[str]:
        """Return the GPUs for which a daemon is requested."""
        try:
            found = {path.name for path in (self._path / "wanted").iterdir()}
        except FileNotFoundError:
            return set()
        return set(filter(_UUID.fullmatch, found))

    def pipe(self, uuid: str) -> pathlib.Path:
        """Return the folder with the sockets of a GPU's daemon."""
        return self._path / "gpus" / _check_uuid(uuid)

    def control(self, uuid: str) -> pathlib.Path:
        """Return the path of the daemon's socket for programs."""
        return self.pipe(uuid) / "control"

    def is_ready(self, uuid: str) -> bool:
        """Tell whether a GPU's daemon serves programs and will continue.

        An agent that first requests the daemon and then calls this gets a reliable answer: the
        supervisor marks the daemon as ending before it checks the requests for the last time.
        """
        runs = self.is_served() and self.control(uuid).is_socket()
        return runs and not self._ending(uuid).exists()

    def _ending(self, uuid: str) -> pathlib.Path:
        return self.pipe(uuid) / "ending"

    def mark_ending(self, uuid: str) -> None:
        """Mark a GPU's daemon as ended or ending."""
        self._ending(uuid).touch()

    def unmark_ending(self, uuid: str) -> None:
        """Remove the mark of a daemon that does not end after all."""
        self._ending(uuid).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the folders of all daemons: those of a killed supervisor ended with it."""
        shutil.rmtree(self._path / "gpus", ignore_errors=True)

    def record(self, uuid: str, fault: Fault) -> None:
        """Record a fault."""
        path = self._faults(uuid)
        path.parent.mkdir(exist_ok=True)
        faults = (*self.faults(uuid), fault)[-MAX_FAULTS:]
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(b"\n".join(map(msgspec.json.encode, faults)))
        temporary.replace(path)

    def _faults(self, uuid: str) -> pathlib.Path:
        """Return the file of a GPU's faults.

        It outlives the daemon, which may end before the faults are reported.
        """
        return self._path / "faults" / _check_uuid(uuid)

    def faults(self, uuid: str) -> tuple[Fault, ...]:
        """Return the recorded faults, the oldest first; none if they cannot be read."""
        try:
            lines = self._faults(uuid).read_bytes().splitlines()
            return tuple(msgspec.json.decode(line, type=Fault) for line in lines)
        except (OSError, msgspec.MsgspecError):
            return ()


def _check_uuid(uuid: str) -> str:
    if not _UUID.fullmatch(uuid):
        raise ValueError(f"{uuid!r} is no GPU's UUID")
    return uuid
