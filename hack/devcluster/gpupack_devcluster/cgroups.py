# SPDX-License-Identifier: Apache-2.0
"""A node's control groups, for cgroup v1 and v2.

Each node has its own group, NAME, directly below the root. Its processes join that group before
they enter the node's namespaces. The cgroup namespace is created there, so that inside the node the
group is the root, and the kubelet creates its `kubepods` in it.

v1: one group in each hierarchy that the host has mounted; inside, each is mounted again.
v2: one group. A group with processes of its own cannot delegate controllers, so after the cgroup
    namespace is created, the node's daemons live in the leaf NAME/daemons.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from gpupack_devcluster.errors import NotInTime

ROOT = Path("/sys/fs/cgroup")
REMOVAL_SECONDS = 10
DAEMONS = "daemons"


class Cgroups(Protocol):
    """The operations on the host's control groups that a node needs."""

    def create(self, name: str) -> None:
        """Create the node's group."""

    def join(self, name: str) -> str:
        """Return shell commands with which the shell joins the group that becomes the root."""

    def settle(self, name: str) -> None:
        """Arrange the group after the node's cgroup namespace is created."""

    def join_daemons(self, name: str) -> str:
        """Return shell commands with which the shell joins the daemons' group of a booted node."""

    def mount(self, name: str) -> str:
        """Return shell commands, run inside the node as root, that mount the node's own view."""

    def groups(self, name: str) -> list[Path]:
        """Return top folders of the node's group that exist."""


class CgroupsV1:
    """Control groups v1.

    There are several hierarchies, some with several controllers (`cpu,cpuacct`) or only a name.
    """

    def __init__(self, root: Path = ROOT, *, mounts: str | None = None) -> None:
        self._root = root
        self._hierarchies = v1_hierarchies(mounts or Path("/proc/self/mounts").read_text(), root)

    def create(self, name: str) -> None:
        """Create the group everywhere; fill its cpuset, since no process can join an empty one."""
        for folder in self._hierarchies:
            group = folder / name
            group.mkdir(exist_ok=True)
            if (group / "cpuset.cpus").exists():
                (group / "cgroup.clone_children").write_text("1")
                for resource in ("cpuset.cpus", "cpuset.mems"):
                    (group / resource).write_text((folder / resource).read_text())

    def join(self, name: str) -> str:
        """Return commands that join every hierarchy."""
        return "".join(f"echo $$ > {f}/{name}/cgroup.procs\n" for f in self._hierarchies)

    def settle(self, name: str) -> None:
        """Do nothing."""

    def join_daemons(self, name: str) -> str:
        """Return the same commands: v1 allows a group with both processes and children."""
        return self.join(name)

    def mount(self, name: str) -> str:
        """Return commands that mount each hierarchy with the options that the host uses."""
        del name
        lines = [f"mount -t tmpfs -o mode=755 cgroup {self._root}"]
        for folder, options in self._hierarchies.items():
            lines += [f"mkdir {folder}", f"mount -t cgroup -o {options} cgroup {folder}"]
        return "\n".join(lines) + "\n"

    def groups(self, name: str) -> list[Path]:
        """Return the group in each hierarchy."""
        return [folder / name for folder in self._hierarchies if (folder / name).is_dir()]


class CgroupsV2:
    """Control groups v2: one hierarchy."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root

    def create(self, name: str) -> None:
        """Create the group, with all controllers that the host has."""
        try:
            hand_down(self._root)
        except OSError:
            # The visible root is a container's, with processes in it.
            move_processes(self._root, self._root / "host")
            hand_down(self._root)
        (self._root / name).mkdir(exist_ok=True)

    def join(self, name: str) -> str:
        """Return commands that join the group itself."""
        return f"echo $$ > {self._root}/{name}/cgroup.procs\n"

    def settle(self, name: str) -> None:
        """Move the group's processes into its leaf, then delegate the controllers."""
        group = self._root / name
        move_processes(group, group / DAEMONS)
        hand_down(group)

    def join_daemons(self, name: str) -> str:
        """Return commands that join the leaf."""
        return f"echo $$ > {self._root}/{name}/{DAEMONS}/cgroup.procs\n"

    def mount(self, name: str) -> str:
        """Return commands that mount the node's view: the namespace makes the group its root."""
        del name
        return f"mount -t cgroup2 cgroup {self._root}\n"

    def groups(self, name: str) -> list[Path]:
        """Return the one group."""
        return [self._root / name] if (self._root / name).is_dir() else []


def move_processes(group: Path, leaf: Path) -> None:
    """Move the processes of a v2 group into a leaf below it."""
    leaf.mkdir(exist_ok=True)
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(OSError):  # it has ended, or is a kernel thread
            (leaf / "cgroup.procs").write_text(pid)


def hand_down(group: Path) -> None:
    """Enable in the children of a v2 group all controllers that it has itself."""
    controllers = (group / "cgroup.controllers").read_text().split()
    enable = " ".join(f"+{controller}" for controller in controllers)
    (group / "cgroup.subtree_control").write_text(enable)


def v1_hierarchies(mounts: str, root: Path) -> dict[Path, str]:
    """Return mounted v1 hierarchies below the root, with the options that name them.

    >>> v1_hierarchies("cgroup /c/cpu cgroup rw,relatime,cpu,cpuacct 0 0", Path("/c"))
    {PosixPath('/c/cpu'): 'cpu,cpuacct'}
    """
    plain = {"rw", "ro", "nosuid", "nodev", "noexec", "relatime", "xattr", "clone_children"}
    found: dict[Path, str] = {}
    for line in mounts.splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind != "cgroup" or Path(folder).parent != root:
            continue
        names = [o for o in options.split(",") if o not in plain and "release_agent" not in o]
        if any(name.startswith("name=") for name in names):
            names = ["none", *names]
        found[Path(folder)] = ",".join(names)
    return found


def host_cgroups(root: Path = ROOT) -> Cgroups:
    """Return this host's version: v2 has its list of controllers at the root."""
    return CgroupsV2(root) if (root / "cgroup.controllers").exists() else CgroupsV1(root)


def remove(groups: list[Path]) -> None:
    """Remove groups from the leaves up; the kernel empties them shortly after their processes."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while remaining := [group for group in groups if group.is_dir()]:
        for group in remaining:
            remove_tree(group)
        if time.monotonic() > deadline:
            raise NotInTime(f"control groups stay: {', '.join(map(str, remaining))}")
        time.sleep(0.02)


def remove_tree(group: Path) -> None:
    """Try once to remove a tree; files in control groups cannot be removed and need not be."""
    for folder, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            Path(folder).rmdir()
