# SPDX-License-Identifier: Apache-2.0
"""The same interface on plain kind, where Docker is available.

Differences that a test may notice: the host's components run in the control-plane node and restart
by themselves; a dead node is NotReady after kube-controller-manager's default of 50 s; kind must be
installed, and pulls its node image (KIND_IMAGE names another one).
"""

import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from gpupack_devcluster import control_plane, kwok, loaded, processes
from gpupack_devcluster.commands import require_binaries, run, succeeds
from gpupack_devcluster.driver import HostComponent
from gpupack_devcluster.errors import NotUp, StoreInvalid, ToolMissing, UnknownName
from gpupack_devcluster.kubectl import Kubectl, wait_until
from gpupack_devcluster.settings import HOST, ClusterSettings
from gpupack_devcluster.timing import phase

NAME = "gpupack"
CONTROL_PLANE = f"{NAME}-control-plane"
SHOWN = "{{.Names}}\t{{.Status}}"
SERVICES_OF_A_NODE = ("containerd", "kubelet")


SHARED_FOLDERS = ("locks", "volumes")
"""Folders of the state folder: locks of the judge's containers, and volumes of all nodes."""


class KindCluster:
    """A kind cluster named `gpupack`."""

    def __init__(
        self, settings: ClusterSettings, *, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.settings = settings
        self._image = environ.get("KIND_IMAGE", "")
        self._kubectl = Kubectl(settings.paths.bin / "kubectl", settings.paths.kubeconfig)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.settings.paths.kubeconfig

    def nodes(self) -> tuple[str, ...]:
        """Return the workers."""
        found = run(["kind", "get", "nodes", "--name", NAME]).split()
        return tuple(sorted(name for name in found if name != CONTROL_PLANE))

    def up(self, *, nodes: int = 2, kwok_nodes: int = 0) -> None:
        """Create the cluster, or start its nodes again."""
        for tool in ("kind", "docker"):
            if shutil.which(tool) is None:
                raise ToolMissing(f"CLUSTER=kind needs {tool} on PATH")
        require_binaries(self.settings.paths.bin, ["kubectl"])
        with phase(f"kind: {nodes} nodes Ready"):
            if NAME in run(["kind", "get", "clusters"]).split():
                run(["docker", "start", CONTROL_PLANE, *self.nodes()])
                self._export_kubeconfig()
            else:
                self._create(nodes)
            self._wait_ready(self.nodes())
        if kwok_nodes:
            self._simulate(kwok_nodes)

    def down(self) -> None:
        """Delete the cluster: kind keeps nothing."""
        processes.kill(processes.scan(self.settings.paths.state))
        run(["kind", "delete", "cluster", "--name", NAME])

    def reset(self) -> None:
        """Delete the cluster and its kubeconfig."""
        self.down()
        self.kubeconfig.unlink(missing_ok=True)

    def load(self, images: Sequence[str]) -> None:
        """Copy images of the Docker daemon, or archives, to the nodes if a worker lacks them.

        The workloads go only to workers: with torch they take 12 GB of a node, and minutes.
        """
        workers = self.nodes()
        for image in images:
            if loaded.is_archive(image):
                kind, held = "image-archive", read_archive(Path(image))
            else:
                kind, held = "docker-image", Archived((), (image,))
            if held.ids and self._all_hold(held.ids):
                continue
            needs = workers if held.is_workload() else (CONTROL_PLANE, *workers)
            run(["kind", "load", kind, image, "--name", NAME, "--nodes", ",".join(needs)])

    def power_off(self, node: str) -> None:
        """Kill the node's container."""
        run(["docker", "kill", self._container(node)])

    def power_on(self, node: str) -> None:
        """Start the node's container."""
        start = time.time()
        run(["docker", "start", self._container(node)])
        self._wait_ready([node], since=start)

    def kill(self, target: str, component: str) -> None:
        """Kill one daemon with `kill -9`; CoreDNS runs on any node."""
        everywhere = component == HostComponent.COREDNS
        containers = [CONTROL_PLANE, *self.nodes()] if everywhere else [self._container(target)]
        pattern = process_pattern(component)
        hits = [succeeds(["docker", "exec", c, "pkill", "-9", "-f", pattern]) for c in containers]
        if not any(hits):
            raise NotUp(f"{component} does not run on {target}")

    def start(self, target: str, component: str) -> None:
        """Start a service of a node; the kubelet starts what runs in pods."""
        if component in SERVICES_OF_A_NODE:
            run(["docker", "exec", self._container(target), "systemctl", "start", component])

    def entry(self, node: str) -> list[str]:
        """Return the command line prefix that enters a node."""
        return ["docker", "exec", "-i", self._container(node)]

    def execute(self, node: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node."""
        words = [*self.entry(node), *command]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def describe(self) -> list[str]:
        """Return the containers that are kind's nodes."""
        label = f"label=io.x-k8s.kind.cluster={NAME}"
        shown = run(["docker", "ps", "--all", "--filter", label, "--format", SHOWN])
        return sorted(shown.splitlines())

    def _all_hold(self, ids: Sequence[str]) -> bool:
        asked = ([*self.entry(node), "crictl", "inspecti", i] for node in self.nodes() for i in ids)
        return all(succeeds(command) for command in asked)

    def _create(self, nodes: int) -> None:
        self.settings.paths.state.mkdir(parents=True, exist_ok=True)
        config = yaml.safe_dump(cluster_config(self.settings, nodes))
        create = ["kind", "create", "cluster", "--name", NAME, "--config", "-"]
        if self._image:
            create.append(f"--image={self._image}")
        run([*create, "--kubeconfig", self.kubeconfig], text_input=config)

    def _export_kubeconfig(self) -> None:
        export = ["kind", "export", "kubeconfig", "--name", NAME]
        run([*export, "--kubeconfig", self.kubeconfig])

    def _simulate(self, count: int) -> None:
        paths = self.settings.paths
        require_binaries(paths.bin, ["kwok", "kwok-stages.yaml"])
        unit = HostComponent.KWOK
        if processes.find(paths.state, unit) is None:
            arguments = control_plane.kwok(self.settings, str(self.kubeconfig))
            processes.spawn(
                [str(paths.bin / unit), *arguments],
                environment=processes.daemon_environment(paths.state, unit, paths.bin),
                log=paths.unit_log(unit),
            )
        kwok.set_nodes(self._kubectl, count)
        self._wait_ready([f"kwok-{index}" for index in range(1, count + 1)])

    def _wait_ready(self, names: Sequence[str], *, since: float = 0.0) -> None:
        seconds = self.settings.ready_seconds
        wait_until(self._kubectl.api_is_ready, what="API server of kind", seconds=seconds)
        self._kubectl.wait_ready(names, since=since, seconds=seconds, hint="kind export logs")

    def _container(self, target: str) -> str:
        """Return a node's container, which has the node's name."""
        if target == HOST:
            return CONTROL_PLANE
        if target not in self.nodes():
            raise UnknownName(f"no node {target!r}: {', '.join(self.nodes())}")
        return target


@dataclass(frozen=True)
class Archived:
    """The content of a `docker save` archive: IDs of images, and their names."""

    ids: tuple[str, ...]
    tags: tuple[str, ...]

    def is_workload(self) -> bool:
        """Return whether only pods with GPUs run it."""
        return any(tag.rpartition("/")[2].startswith("workloads") for tag in self.tags)


def read_archive(archive: Path) -> Archived:
    """Read an archive's manifest.

    Raises:
        StoreInvalid: the archive has no manifest.
    """
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        if manifest is None:
            raise StoreInvalid(
                f"{archive}: manifest.json is no file: not what `docker save` writes"
            )
        entries = json.load(manifest)
    configs = [Path(entry["Config"]).name.removesuffix(".json") for entry in entries]
    return Archived(
        ids=tuple(f"sha256:{config}" for config in configs),
        tags=tuple(tag for entry in entries for tag in entry.get("RepoTags") or ()),
    )


def process_pattern(component: str) -> str:
    """Return a pattern for `pkill -f`: the process table cuts names after 15 characters."""
    return f"^([^ ]*/)?{re.escape(component)}( |$)"


def cluster_config(settings: ClusterSettings, nodes: int) -> dict[str, object]:
    """Return kind's configuration, with kubelets that renew leases as fast as in our own cluster.

    Each node has the host's folders that tests read from both sides.
    """
    kubelet = {
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": settings.node_lease_seconds,
        "imageGCHighThresholdPercent": 100,
    }
    shared = [str(settings.paths.state.resolve() / name) for name in SHARED_FOLDERS]
    mounts = [{"hostPath": path, "containerPath": path} for path in shared]
    roles = ["control-plane", *["worker"] * nodes]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": role, "extraMounts": mounts} for role in roles],
        "kubeadmConfigPatches": [json.dumps(kubelet)],
    }
