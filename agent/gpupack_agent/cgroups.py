# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of a pod: does its cgroup exist, and is anything in it?

The API can show a pod as gone (force delete) or finished (pod garbage collection of a lost node)
while its processes still use a GPU. The pod's cgroup cannot lie: it has processes for as long as
any container of the pod has. The kubelet removes it some seconds after the pod is gone.

Nothing but "there is no such folder" counts as absence. Whatever else keeps us from looking (no
free file descriptor, an I/O error) leaves open whether the pod lives; then it counts as alive,
since the record that it holds its GPUs goes with its death. So does a node on which no cgroups of
pods are found at all: the agent's own pod has one, so they are elsewhere (cgroupRoot).

Counts come from `cgroup.events` (v2) and `pids.current` (v1), which see processes in any PID
namespace; `cgroup.procs` shows an agent without hostPID nothing.
"""

import enum
import logging
import os
import pathlib
import re
from collections.abc import Iterator

from gpupack_agent.errors import AgentError

log = logging.getLogger(__name__)

_PARENT = re.compile(
    r"kubelet|kubepods|besteffort|burstable|kubelet\.slice"
    r"|([A-Za-z0-9_.]+-)*kubepods(-besteffort|-burstable)?\.slice"
)
"""Folders that can hold pods' cgroups, as the cgroupfs and systemd drivers name them."""
_TOP = "kubepods"
"""In the name of the folder that holds them all."""

_POD = re.compile(r"pod([0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
PROC = pathlib.Path("/proc")

_HIERARCHIES_V1 = ("pids", "memory", "cpu", "systemd")


class PodCgroupsMissing(AgentError):
    """There are no cgroups of pods below the kubelet's cgroupRoot, as far as it is known."""

    def __init__(self, below: str) -> None:
        super().__init__(
            f"no cgroups of pods (kubepods) are found below {below} of the node's cgroups: set "
            "kubelet.cgroupRoot to the cgroupRoot of its kubelet"
        )


class CgroupState(enum.Enum):
    """What is left of a pod on this node."""

    ABSENT = "absent"
    EMPTY = "empty"
    POPULATED = "populated"


class Cgroups:
    """The pods' cgroups of this node, v1 or v2.

    Args:
        root: where the node's cgroup file system is seen.
        below: the kubelet's cgroupRoot; None: not known, they are searched by name.

    Attributes:
        problem: why the cgroups of pods are not found; empty: they are.
    """

    def __init__(self, root: pathlib.Path, below: str | None = None) -> None:
        self._root, self._below = root, below
        self.problem = ""

    def state(self, uid: str) -> CgroupState:
        """Look for the pod with this UID."""
        try:
            return self._look(uid)
        except PodCgroupsMissing as error:
            if not self.problem:
                log.error("%s; all pods count as alive", error)  # noqa: TRY400 - the text says it all
            self.problem = str(error)
            return CgroupState.POPULATED
        except OSError as error:
            log.warning("pod %s counts as alive, its cgroup cannot be read: %s", uid, error)
            return CgroupState.POPULATED

    def _look(self, uid: str) -> CgroupState:
        found = self._find(uid)
        if found is None:
            return CgroupState.ABSENT
        return CgroupState.POPULATED if _populated(found) else CgroupState.EMPTY

    def _find(self, uid: str) -> pathlib.Path | None:
        parents = [parent for top in self._tops() for parent in _parents(top)]
        if not any(_TOP in parent.name for parent in parents):
            raise PodCgroupsMissing(self._below or "/")
        self.problem = ""
        for parent in parents:
            for name in _names(parent.name, uid):
                if _exists(parent / name):
                    return parent / name
        return None

    def _tops(self) -> Iterator[pathlib.Path]:
        """Folders below which the kubelet makes those of pods."""
        hierarchy, parts = self._hierarchy(), [p for p in (self._below or "").split("/") if p]
        yield hierarchy.joinpath(*parts)
        if parts:
            yield hierarchy.joinpath(*_slices(parts))

    def _hierarchy(self) -> pathlib.Path:
        """The root itself on v2; on v1 one hierarchy, since the kubelet uses all of them alike."""
        if _exists(self._root / "cgroup.controllers"):
            return self._root
        mounted = (self._root / name for name in _HIERARCHIES_V1)
        return next(filter(_exists, mounted), self._root)


def _exists(path: pathlib.Path) -> bool:
    """Unlike Path.exists, which takes some errors, in newer Pythons all, for absence."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def _parents(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """All folders that can hold pods; by name: a kubelet can have a cgroup root of its own."""
    for name in _folders(folder):
        if _PARENT.fullmatch(name):
            yield folder / name
            yield from _parents(folder / name)


def _folders(folder: pathlib.Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return []


def _slices(parts: list[str]) -> list[str]:
    """A cgroupRoot as the systemd driver makes it: /a/b is a.slice/a-b.slice."""
    names = [part.removesuffix(".slice").replace("-", "_") for part in parts]
    return [f"{'-'.join(names[: number + 1])}.slice" for number in range(len(names))]


def _names(parent: str, uid: str) -> tuple[str, str]:
    """A pod's cgroup as the cgroupfs driver names it, and as the systemd driver does."""
    slice_ = parent.removesuffix(".slice")
    return f"pod{uid}", f"{slice_}-pod{uid.replace('-', '_')}.slice"


def _populated(cgroup: pathlib.Path) -> bool:
    """Whether any process lives in it; where the kernel does not tell, assume one."""
    try:
        return "populated 1" in (cgroup / "cgroup.events").read_text()
    except FileNotFoundError:
        return _populated_v1(cgroup)


def _populated_v1(cgroup: pathlib.Path) -> bool:
    try:
        return int((cgroup / "pids.current").read_text()) > 0
    except FileNotFoundError:
        return _exists(cgroup)
    except ValueError:
        return True


def pod_of(pid: int, proc: pathlib.Path = PROC) -> str | None:
    """The UID of the pod that a process belongs to; None: of none, or it is gone.

    The PID is of the host's namespace, which the agent shares. Names of cgroups are any bytes: a
    container may make some below its own.
    """
    try:
        found = _POD.search((proc / str(pid) / "cgroup").read_text(errors="replace"))
    except OSError:
        return None
    return found[1].replace("_", "-") if found else None
