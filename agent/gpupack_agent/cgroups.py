# SPDX-License-Identifier: Apache-2.0
"""The kernel's state of a pod: whether its cgroup exists, and whether it contains processes.

The API can show a pod as gone (forced deletion) or finished (pod garbage collection of a lost node)
while its processes still use a GPU. The pod's cgroup is reliable: it has processes for as long as
any container of the pod has. The kubelet removes it some seconds after the pod is gone.

Only a missing folder counts as absence. Any other obstacle (no free file descriptor, an I/O error)
leaves open whether the pod lives. Then it counts as alive, because the record that it holds its
GPUs is removed when it is dead. The same applies to a node on which no cgroups of pods are found at
all: the agent's own pod has one, so they must be elsewhere (cgroupRoot).

Counts come from `cgroup.events` (v2) and `pids.current` (v1), which count processes in any PID
namespace; `cgroup.procs` shows nothing to an agent without hostPID.
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
"""The names of folders that can contain pods' cgroups, of the cgroupfs and systemd drivers."""
_ROOT_NAME = "kubepods"
"""A part of the name of the folder that contains them all."""

_POD = re.compile(r"pod([0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
PROC = pathlib.Path("/proc")

_HIERARCHIES_V1 = ("pids", "memory", "cpu", "systemd")


class PodCgroupsMissing(AgentError):
    """An error: there are no cgroups of pods below the kubelet's cgroupRoot, as far as known."""

    def __init__(self, below: str) -> None:
        super().__init__(
            f"no cgroups of pods (kubepods) are found below {below} of the node's cgroups: set "
            "kubelet.cgroupRoot to the cgroupRoot of its kubelet"
        )


class CgroupState(enum.Enum):
    """The state of a pod's cgroup on this node."""

    ABSENT = "absent"
    EMPTY = "empty"
    POPULATED = "populated"


class Cgroups:
    """The pods' cgroups of this node, v1 or v2.

    Args:
        root: the agent's path of the node's cgroup file system.
        below: the kubelet's cgroupRoot; None: not known, the cgroups are searched by name.

    Attributes:
        problem: why the cgroups of pods are not found; empty: no problem.
    """

    def __init__(self, root: pathlib.Path, below: str | None = None) -> None:
        self._root, self._below = root, below
        self.problem = ""

    def state(self, uid: str) -> CgroupState:
        """Return the state of the cgroup of the pod with this UID."""
        try:
            return self._read_state(uid)
        except PodCgroupsMissing as error:
            if not self.problem:
                log.error("%s; all pods count as alive", error)  # noqa: TRY400 - the text suffices
            self.problem = str(error)
            return CgroupState.POPULATED
        except OSError as error:
            log.warning("pod %s counts as alive, its cgroup cannot be read: %s", uid, error)
            return CgroupState.POPULATED

    def _read_state(self, uid: str) -> CgroupState:
        found = self._find(uid)
        if found is None:
            return CgroupState.ABSENT
        return CgroupState.POPULATED if _populated(found) else CgroupState.EMPTY

    def _find(self, uid: str) -> pathlib.Path | None:
        parents = [parent for top in self._pod_cgroup_roots() for parent in _parents(top)]
        if not any(_ROOT_NAME in parent.name for parent in parents):
            raise PodCgroupsMissing(self._below or "/")
        self.problem = ""
        for parent in parents:
            for name in _cgroup_names(parent.name, uid):
                if _exists(parent / name):
                    return parent / name
        return None

    def _pod_cgroup_roots(self) -> Iterator[pathlib.Path]:
        """Iterate over the folders below which the kubelet creates the cgroups of pods."""
        hierarchy, parts = self._hierarchy(), [p for p in (self._below or "").split("/") if p]
        yield hierarchy.joinpath(*parts)
        if parts:
            yield hierarchy.joinpath(*_systemd_slices(parts))

    def _hierarchy(self) -> pathlib.Path:
        """Return the root on v2; on v1 one hierarchy, because the kubelet uses all alike."""
        if _exists(self._root / "cgroup.controllers"):
            return self._root
        mounted = (self._root / name for name in _HIERARCHIES_V1)
        return next(filter(_exists, mounted), self._root)


def _exists(path: pathlib.Path) -> bool:
    """Tell whether a path exists; raises OSError for any error other than absence.

    Path.exists takes some errors for absence, and in newer Pythons all errors.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def _parents(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Iterate over all folders that can contain pods' cgroups, below any cgroupRoot.

    They are found by name.
    """
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


def _systemd_slices(parts: list[str]) -> list[str]:
    """Return the folders of a cgroupRoot with the systemd driver: /a/b is a.slice/a-b.slice."""
    names = [part.removesuffix(".slice").replace("-", "_") for part in parts]
    return [f"{'-'.join(names[: number + 1])}.slice" for number in range(len(names))]


def _cgroup_names(parent: str, uid: str) -> tuple[str, str]:
    """Return the names of a pod's cgroup with the cgroupfs driver and the systemd driver."""
    slice_ = parent.removesuffix(".slice")
    return f"pod{uid}", f"{slice_}-pod{uid.replace('-', '_')}.slice"


def _populated(cgroup: pathlib.Path) -> bool:
    """Tell whether the cgroup has a process; if the kernel does not show it, assume one."""
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
    """Return the UID of a process's pod; None: it belongs to no pod, or the process is gone.

    The PID is of the host's namespace, which the agent shares. Names of cgroups can be any bytes: a
    container may create cgroups below its own.
    """
    try:
        found = _POD.search((proc / str(pid) / "cgroup").read_text(errors="replace"))
    except OSError:
        return None
    return found[1].replace("_", "-") if found else None
