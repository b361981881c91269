# SPDX-License-Identifier: Apache-2.0
"""A node: one PID namespace with its own mounts, network, host name and control groups.

The first process is `pause`, which only reaps. kubelet, containerd, the shims, kube-proxy and all
pods live below it, so that killing it is a power cut: the kernel ends every process at once and
removes mounts, veth pairs and nftables.

Daemons join the node's control groups first and then enter its namespaces; restarted daemons are
accounted for like the first ones.
"""

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gpupack_devcluster import cgroups, network, processes
from gpupack_devcluster.certificates import Authority, node_identity
from gpupack_devcluster.cgroups import Cgroups
from gpupack_devcluster.commands import run
from gpupack_devcluster.driver import NodeComponent
from gpupack_devcluster.errors import NotUp, UnknownName
from gpupack_devcluster.images import ImagePlan, import_archive, seed
from gpupack_devcluster.kubectl import wait_until
from gpupack_devcluster.node_config import BOOTED, CONTAINERD_SOCKET, DISK_MOUNTS, NodeConfig
from gpupack_devcluster.processes import Process

NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup")


class Node:
    """One node of the cluster, on or off."""

    def __init__(self, config: NodeConfig, host_cgroups: Cgroups) -> None:
        self.config = config
        self._cgroups = host_cgroups
        self._paths = config.settings.paths

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.config.name

    def first_process(self) -> Process | None:
        """Return the node's first process, if the node is on."""
        return processes.find(self._paths.state, f"{self.name}/init")

    def daemon(self, component: NodeComponent) -> Process | None:
        """Return a daemon of the node, if it runs."""
        return processes.find(self._paths.state, f"{self.name}/{component}")

    def boot(self, authority: Authority) -> None:
        """Create the namespaces; idempotent. A half-booted node is booted again."""
        first = self.first_process()
        if first is not None and root_of(first, BOOTED).exists():
            return
        self.power_off()
        self._write_disk(authority)
        self._cgroups.create(self.name)
        self._start_first_process()
        pid = self._power().pid
        self._cgroups.settle(self.name)
        network.connect(self.config.settings.addresses, self.config.index, pid)
        script = self.config.boot_script(self._cgroups.mount(self.name))
        run([*enter(pid), "sh", "-ec", script])

    def start(self, component: NodeComponent) -> None:
        """Start a daemon unless it runs; the kubelet needs containerd's socket."""
        if self.daemon(component) is not None:
            return
        unit = f"{self.name}/{component}"
        command = [*enter(self._power().pid), *self.config.command(component)]
        processes.spawn(
            shell(self._cgroups.join_daemons(self.name), command),
            environment=processes.daemon_environment(self._paths.state, unit, self._paths.bin),
            log=self._paths.unit_log(unit),
        )
        if component is NodeComponent.CONTAINERD:
            self._wait_for_containerd()

    def kill(self, component: NodeComponent) -> None:
        """Kill a daemon with `kill -9`."""
        running = self.daemon(component)
        if running is None:
            raise NotUp(f"{component} does not run on {self.name}")
        processes.kill([running])

    def power_off(self) -> None:
        """Cut the power; return when every process and control group of the node is gone."""
        mine = [p for p in processes.scan(self._paths.state) if p.unit.startswith(f"{self.name}/")]
        processes.kill(mine)
        cgroups.remove(self._cgroups.groups(self.name))

    def route_to(self, running: list[int]) -> None:
        """Set the routes to the pods of the other nodes."""
        batch = network.peer_routes(self.config.settings.addresses, self.config.index, running)
        pid = str(self._power().pid)
        run(["nsenter", "--target", pid, "--net", "ip", "-batch", "-"], text_input=batch)

    def seed(self, plan: ImagePlan) -> int:
        """Link an image of the store into containerd; return how many layers were new."""
        return seed(self._paths.bin / "image-seed", self._paths.state, self._socket(), plan)

    def import_archive(self, archive: Path) -> None:
        """Unpack an image archive into containerd."""
        import_archive(self._paths.bin / "ctr", self._socket(), archive)

    def execute(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside the node."""
        return subprocess.run(
            [*enter(self._power().pid), *command],
            env=processes.daemon_environment(self._paths.state, self.name, self._paths.bin),
            capture_output=True,
            text=True,
            check=False,
        )

    def entry(self) -> list[str]:
        """Return the command line that enters the node."""
        return enter(self._power().pid)

    def _power(self) -> Process:
        first = self.first_process()
        if first is None:
            raise NotUp(f"node {self.name} is off")
        return first

    def _socket(self) -> Path:
        return root_of(self._power(), CONTAINERD_SOCKET)

    def _start_first_process(self) -> None:
        unit = f"{self.name}/init"
        pause = str(self._paths.bin / "pause")
        command = ["unshare", *NAMESPACES, "--fork", "--kill-child", pause]
        processes.spawn(
            shell(self._cgroups.join(self.name), command),
            environment=processes.daemon_environment(self._paths.state, unit, self._paths.bin),
            log=self._paths.unit_log(unit),
        )
        wait_until(
            lambda: self.first_process() is not None,
            what=f"first process of {self.name} (log: {self._paths.unit_log(unit)})",
            seconds=10,
            pause_seconds=0.01,
        )

    def _wait_for_containerd(self) -> None:
        log = self._paths.unit_log(f"{self.name}/containerd")
        wait_until(
            lambda: accepts(self._socket()),
            what=f"containerd of {self.name} (log: {log})",
            seconds=self.config.settings.ready_seconds,
            pause_seconds=0.05,
        )

    def _write_disk(self, authority: Authority) -> None:
        address = self.config.settings.addresses.node(self.config.index)
        authority.issue(node_identity(self.name, address))
        for folder in DISK_MOUNTS:
            (self.config.disk / folder).mkdir(parents=True, exist_ok=True)
        for name, text in self.config.files().items():
            path = self.config.disk / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def node_component(name: str) -> NodeComponent:
    """Return a component by its name."""
    try:
        return NodeComponent(name)
    except ValueError:
        raise UnknownName(f"no component {name!r} on a node: {', '.join(NodeComponent)}") from None


def enter(pid: int) -> list[str]:
    """Return the command line prefix that enters all namespaces of a process."""
    return ["nsenter", f"--target={pid}", "-m", "-n", "-p", "-u", "-i", "-C", "--"]


def shell(preparation: str, command: Sequence[str]) -> list[str]:
    """Return a command that runs shell commands first, then becomes the command."""
    return ["sh", "-ec", f'{preparation}exec "$@"', "sh", *command]


def accepts(path: Path) -> bool:
    """Return whether a daemon listens on a socket: containerd does after loading its plugins."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def root_of(process: Process, path: str) -> Path:
    """Return a path as a process sees it."""
    return Path(f"/proc/{process.pid}/root{path}")
