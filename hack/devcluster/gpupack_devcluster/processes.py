# SPDX-License-Identifier: Apache-2.0
"""Daemons: how they are started, found again, and reliably ended.

Every process that we start has two environment variables: MARK, the cluster's state folder, and
UNIT, its unit (`etcd`, `gpupack-1/kubelet`). Children inherit both, so a process is the unit's
daemon only if it also has its name. /proc is thus the only record of what runs: no pid file can be
stale, be lost, or name a foreign process.

Processes are ended through pidfds. These cannot hit a process that reused a number, and they become
readable when the process is gone, so that no polling is needed.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from gpupack_devcluster.errors import NotInTime

MARK = "GPUPACK_DEVCLUSTER"
UNIT = "GPUPACK_DEVCLUSTER_UNIT"
PROC = Path("/proc")
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Process:
    """A live process of the cluster."""

    pid: int
    name: str
    """Its name (argv[0], without folders)."""
    unit: str
    """The unit as which it, or an ancestor, was started."""

    @property
    def is_daemon(self) -> bool:
        """Whether this is the unit's daemon itself, not its launcher or a child."""
        return daemon_name(self.unit) == self.name


def daemon_name(unit: str) -> str:
    """Return the program name of a unit; a node's first process is `pause`."""
    component = unit.rpartition("/")[2]
    return "pause" if component == "init" else component


def scan(state: Path, *, proc: Path = PROC) -> list[Process]:
    """Return all live processes of the cluster with this state folder.

    A zombie no longer has an environment, so it counts as gone.
    """
    found = (read_process(folder, state) for folder in proc.iterdir() if folder.name.isdigit())
    return [process for process in found if process is not None]


def read_process(folder: Path, state: Path) -> Process | None:
    """Read one folder of /proc, if the process is ours; it may vanish at any time."""
    try:
        environment = parse_environment((folder / "environ").read_bytes())
        if environment.get(MARK) != str(state):
            return None
        command = (folder / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    name = command[0].decode(errors="replace").rpartition("/")[2]
    return Process(pid=int(folder.name), name=name, unit=environment.get(UNIT, ""))


def parse_environment(block: bytes) -> dict[str, str]:
    """Parse a process's environment from the kernel's form."""
    pairs = (item.partition(b"=") for item in block.split(b"\0") if b"=" in item)
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, _, v in pairs}


def find(state: Path, unit: str) -> Process | None:
    """Return the unit's daemon, if it runs."""
    return next((p for p in scan(state) if p.unit == unit and p.is_daemon), None)


def daemon_environment(state: Path, unit: str, binaries: Path) -> dict[str, str]:
    """Return a small environment for a daemon, without the caller's proxy or PYTHON variables."""
    return {
        "PATH": f"{binaries}:{SEARCH_PATH}",
        "HOME": "/root",
        "TMPDIR": "/run",
        MARK: str(state),
        UNIT: unit,
    }


def spawn(command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
    """Start a daemon that outlives this process; `find` finds it by its name."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        subprocess.run(
            ["setsid", "--fork", *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=True,
            cwd="/",
        )


def terminate(processes: Iterable[Process], *, grace_seconds: float) -> None:
    """Send SIGTERM, and SIGKILL to processes that remain after the grace time."""
    with ExitStack() as stack:
        handles = open_handles(processes, stack)
        send(handles, signal.SIGTERM)
        remaining = wait_gone(handles, grace_seconds)
        send(remaining, signal.SIGKILL)
        require_gone(remaining)


def kill(processes: Iterable[Process]) -> None:
    """Send SIGKILL; return when the processes are gone.

    The first process of a PID namespace is gone only after everything in that namespace.
    """
    with ExitStack() as stack:
        handles = open_handles(processes, stack)
        send(handles, signal.SIGKILL)
        require_gone(handles)


def open_handles(processes: Iterable[Process], stack: ExitStack) -> dict[int, Process]:
    """Open pidfds of the processes that are still alive."""
    handles: dict[int, Process] = {}
    for process in processes:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(process.pid)
            stack.callback(os.close, handle)
            handles[handle] = process
    return handles


def send(handles: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to all; ignore processes that have just ended."""
    for handle in handles:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)


def require_gone(handles: Mapping[int, Process]) -> None:
    """Wait for killed processes; one that remains hangs in the kernel."""
    stuck = wait_gone(handles, seconds=20)
    if stuck:
        names = ", ".join(f"{p.unit} (pid {p.pid})" for p in stuck.values())
        raise NotInTime(f"killed, but still there after 20 s: {names}")


def wait_gone(handles: Mapping[int, Process], seconds: float) -> dict[int, Process]:
    """Wait until all are gone; return those that are not."""
    remaining = dict(handles)
    poller = select.poll()
    for handle in remaining:
        poller.register(handle, select.POLLIN)
    deadline = time.monotonic() + seconds
    while remaining and (left := deadline - time.monotonic()) > 0:
        for handle, _ in poller.poll(left * 1000):
            poller.unregister(handle)
            remaining.pop(handle)
    return remaining
