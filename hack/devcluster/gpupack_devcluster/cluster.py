# SPDX-License-Identifier: Apache-2.0
"""The cluster as a whole: a ClusterDriver on this host's own kernel.

`up` observes what runs and starts the rest, so it also completes an interrupted `up`. `down` ends
every marked process with SIGKILL. That is safe: a node that goes down loses its power anyway, etcd
and the API server survive it, and no Lease is held.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gpupack_devcluster import cgroups, host, kwok, loaded, network, processes
from gpupack_devcluster.certificates import Authority
from gpupack_devcluster.commands import (
    cni_folder,
    find_tool,
    require_binaries,
    require_root,
    require_tools,
)
from gpupack_devcluster.control_plane import CONTROLLERS, STORE, ControlPlane, host_component
from gpupack_devcluster.driver import HostComponent, NodeComponent
from gpupack_devcluster.errors import ImageMissing, UnknownName
from gpupack_devcluster.images import ImageStore
from gpupack_devcluster.kubectl import Kubectl
from gpupack_devcluster.locking import locked, locked_if_free
from gpupack_devcluster.node import Node, node_component
from gpupack_devcluster.node_config import NodeConfig
from gpupack_devcluster.parallel import for_all
from gpupack_devcluster.settings import HOST, SANDBOX_IMAGE, ClusterSettings, Paths, node_name
from gpupack_devcluster.timing import logger, phase

BINARIES = (
    "containerd",
    "containerd-shim-runc-v2",
    "image-seed",
    "kube",
    "kubectl",
    "pause",
)


class Cluster:
    """One cluster on this host, identified by its state folder."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._paths = settings.paths
        self._kubectl = Kubectl(self._paths.bin / "kubectl", self._paths.kubeconfig)
        self._control_plane = ControlPlane(settings, self._kubectl)
        self._authority = Authority(self._paths.pki, settings.api_server)
        self._store = ImageStore(self._paths.image_store)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._paths.kubeconfig

    def nodes(self) -> tuple[str, ...]:
        """Return names of the real nodes that `up` created."""
        return tuple(node_name(index) for index in self._indexes())

    def up(self, *, nodes: int = 2, kwok_nodes: int = 0) -> None:
        """Start what is not running; return when all nodes are Ready."""
        self._check(nodes)
        with locked(self._paths.lock):
            self._up(nodes, kwok_nodes)

    def down(self) -> None:
        """Stop everything; only files below the state folder remain."""
        require_root()
        with locked(self._paths.lock), phase("stopped"):
            self._down()

    def reset(self) -> None:
        """Stop everything, and delete the data of etcd, certificates and the nodes' disks."""
        self.down()
        with locked(self._paths.lock), phase("data deleted"):
            shutil.rmtree(self._paths.cluster, ignore_errors=True)
            self._paths.kubeconfig.unlink(missing_ok=True)

    def load(self, images: Sequence[str]) -> None:
        """Load images into every running node, and into the others when they boot."""
        require_root()
        for image in images:
            self._require_image(image)
            if loaded.is_archive(image):
                require_binaries(self._paths.bin, ["ctr"])
        with locked(self._paths.lock):
            loaded.add(self._paths.loaded_images, images)
            running = self._running()
            for image in images:
                for_all(running, partial(self._give, image=image))

    def power_off(self, node: str) -> None:
        """Cut the power of a node."""
        require_root()
        self.node(node).power_off()

    def power_on(self, node: str) -> None:
        """Boot a node; return when it is Ready."""
        require_root()
        start = time.time()
        index = self.node(node).config.index
        self._boot(index)
        self._start_daemons(index)
        self._wait_ready([node], since=start)

    def kill(self, target: str, component: str) -> None:
        """Kill one daemon of a node or of the host with `kill -9`."""
        require_root()
        if target == HOST:
            self._control_plane.kill(host_component(component))
        else:
            self.node(target).kill(node_component(component))

    def start(self, target: str, component: str) -> None:
        """Start a daemon that is not running."""
        require_root()
        if target == HOST:
            self._control_plane.start(host_component(component))
        else:
            self.node(target).start(node_component(component))

    def entry(self, node: str) -> list[str]:
        """Return the command line prefix that enters a node."""
        require_root()
        return self.node(node).entry()

    def execute(self, node: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node."""
        require_root()
        return self.node(node).execute(command)

    def node(self, name: str) -> Node:
        """Return a node by its name."""
        for index in self._indexes():
            if node_name(index) == name:
                return self._node(index)
        raise UnknownName(f"no node {name!r}: {', '.join(self.nodes()) or 'the cluster has none'}")

    def running_units(self) -> dict[str, int]:
        """Return the running daemons, with their process identifiers."""
        found = processes.scan(self._paths.state)
        return {p.unit: p.pid for p in sorted(found, key=lambda p: p.unit) if p.is_daemon}

    def describe(self) -> list[str]:
        """Return daemons with their process identifiers, then nodes."""
        require_root()  # other users cannot see root's processes
        units = self.running_units()
        if not units:
            return []
        ready = self._kubectl.ready_nodes() if self._kubectl.api_is_ready() else set()
        lines = [f"{unit:<32} pid {pid}" for unit, pid in units.items()]
        for name in self.nodes():
            power = "on" if f"{name}/init" in units else "off"
            lines.append(f"{name:<32} {power}, {'Ready' if name in ready else 'not Ready'}")
        return lines

    def _up(self, nodes: int, kwok_nodes: int) -> None:
        self._check_images()
        if self._authority.is_due():
            # Daemons and kubelets read their kubeconfigs only at their start.
            logger.warning("certificates end soon: everything is stopped and started with new ones")
            self._down()
        self._prepare_host()
        start = time.time()
        with phase("control plane"):
            for component in STORE:
                self._control_plane.start(component)
            for_all(range(1, nodes + 1), self._boot)
            self._control_plane.wait_for_api()
            for component in CONTROLLERS:
                self._control_plane.start(component)
        self._retire(surplus=[index for index in self._indexes() if index > nodes])
        with phase(f"{nodes} nodes Ready"):
            fresh = self._without_kubelet()
            for_all(range(1, nodes + 1), self._start_daemons)
            self._wait_ready(fresh, since=start)
            self._wait_ready(self.nodes(), since=0)
        self._simulate(kwok_nodes)

    def _down(self) -> None:
        self._end(self._paths.state)
        for index in self._indexes():
            cgroups.remove(cgroups.host_cgroups().groups(node_name(index)))

    def _end(self, state: Path) -> None:
        """Kill all processes with this state folder and restore the host's network."""
        while running := processes.scan(state):
            processes.kill(running)
        network.take_down(self.settings.addresses, state)
        host.restore()

    def end_abandoned(self) -> None:
        """End another cluster that was not stopped: its checkout is deleted, or none of it runs.

        The bridge outlives the processes where a container or a session ends with everything in it.
        """
        owner = network.owner(self.settings.addresses)
        if not owner or Path(owner) == self._paths.state:
            return
        if not Path(owner).exists():
            logger.warning("removing what is left of the cluster of deleted folder %s", owner)
            self._end(Path(owner))
            return
        # The holder of the lock may be about to start the first process.
        with locked_if_free(Paths(Path(owner)).lock) as free:
            if free and not processes.scan(Path(owner)):
                logger.warning("removing the bridge of %s, a cluster of which nothing runs", owner)
                self._end(Path(owner))

    def _check(self, nodes: int) -> None:
        require_root()
        require_tools(self._paths.bin)
        require_binaries(self._paths.bin, BINARIES)
        maximum = self.settings.addresses.maximum_nodes
        if not 1 <= nodes <= maximum:
            raise UnknownName(f"--nodes {nodes}: between 1 and {maximum}")

    def _check_images(self) -> None:
        """Require only the sandbox image; others may have left the store."""
        remembered = loaded.read(self._paths.loaded_images)
        if not any(loaded.is_archive(image) for image in remembered):  # an archive may contain it
            self._require_image(SANDBOX_IMAGE)
        wanted = dict.fromkeys([SANDBOX_IMAGE, *remembered])
        found = [image for image in wanted if self._has_image(image)]
        for image in remembered:
            if image not in found:
                logger.warning("forgetting image %s: it is not in the store any more", image)
        loaded.write(self._paths.loaded_images, found)

    def _has_image(self, image: str) -> bool:
        return Path(image).exists() if loaded.is_archive(image) else self._store.has(image)

    def _require_image(self, image: str) -> None:
        if not self._has_image(image):
            where = self._paths.image_store
            raise ImageMissing(f"no image {image} (store: {where}): build it first (make images)")

    def _prepare_host(self) -> None:
        with phase("host and certificates"):
            self._paths.cluster.mkdir(parents=True, exist_ok=True)
            self.end_abandoned()
            masquerade = self.settings.masquerade
            network.put_up(self.settings.addresses, self._paths.state, masquerade=masquerade)
            host.prepare(forward=masquerade)
            self._control_plane.prepare(self._authority)

    def _boot(self, index: int) -> None:
        """Start everything of a node that needs no API server."""
        node = self._node(index)
        node.boot(self._authority)
        node.start(NodeComponent.CONTAINERD)
        for image in loaded.read(self._paths.loaded_images):
            self._give(index, image)

    def _start_daemons(self, index: int) -> None:
        running = self._running()
        for other in running:
            self._node(other).route_to(running)
        self._node(index).start(NodeComponent.KUBELET)
        self._node(index).start(NodeComponent.KUBE_PROXY)

    def _give(self, index: int, image: str) -> None:
        node = self._node(index)
        start = time.monotonic()
        if loaded.is_archive(image):
            node.import_archive(Path(image))
            logger.info("%6.2f s  %s: %s imported", time.monotonic() - start, node.name, image)
        elif layers := node.seed(self._store.plan(image)):
            seconds = time.monotonic() - start
            logger.info("%6.2f s  %s: %s, %d layers", seconds, node.name, image, layers)

    def _retire(self, surplus: Sequence[int]) -> None:
        for index in surplus:
            self._node(index).power_off()
            self._kubectl("delete", "node", node_name(index), "--ignore-not-found")
            shutil.rmtree(self._paths.node(node_name(index)))
            # Its certificate is no longer renewed, so it must not be found due.
            for path in self._paths.pki.glob(f"{node_name(index)}.*"):
                path.unlink()

    def _simulate(self, count: int) -> None:
        if count == 0 and self._control_plane.daemon(HostComponent.KWOK) is None:
            return
        require_binaries(self._paths.bin, ["kwok", "kwok-stages.yaml"])
        with phase(f"{count} simulated nodes Ready"):
            self._control_plane.start(HostComponent.KWOK)
            kwok.set_nodes(self._kubectl, count)
            self._wait_ready([f"kwok-{index}" for index in range(1, count + 1)], since=0)

    def _wait_ready(self, names: Sequence[str], *, since: float) -> None:
        self._kubectl.wait_ready(
            names,
            since=since,
            seconds=self.settings.ready_seconds,
            hint=f"logs: {self._paths.log}/NODE/*.log",
        )

    def _without_kubelet(self) -> list[str]:
        """Return nodes whose heartbeats in the API are from before."""
        units = self.running_units()
        return [name for name in self.nodes() if f"{name}/{NodeComponent.KUBELET}" not in units]

    def _node(self, index: int) -> Node:
        config = NodeConfig(
            settings=self.settings,
            index=index,
            cni_folder=cni_folder(self._paths.bin),
            host_ports=find_tool("iptables", self._paths.bin) is not None,
        )
        return Node(config, cgroups.host_cgroups())

    def _indexes(self) -> list[int]:
        """Return indexes of the nodes that have a disk."""
        folders = (self._paths.cluster / "nodes").glob("gpupack-*")
        matches = (re.fullmatch(r"gpupack-(\d+)", folder.name) for folder in folders)
        return sorted(int(match[1]) for match in matches if match)

    def _running(self) -> list[int]:
        units = self.running_units()
        return [index for index in self._indexes() if f"{node_name(index)}/init" in units]
