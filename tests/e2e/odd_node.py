# SPDX-License-Identifier: Apache-2.0
"""A node with unusual paths of kubelet and driver, with an agent that uses the driver.

The kubelet has another --root-dir and a cgroupRoot, as with k0s, and with k3s from a shell. The
driver is a stand-in for NVIDIA's, in the folder of NVIDIA's GPU operator or in that of GKE. The
chart's own agents leave the node out, as a virtual one. Its agent is the chart's with NVML, for
this node alone.
"""

import contextlib
import dataclasses
import pathlib
import shutil
import subprocess

import stand_in_driver
import yaml
from harness import ROOT, STATE, SYSTEM_NAMESPACE, Kube, wait_for

from gpupack_devcluster import cgroups
from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.node import Node
from gpupack_devcluster.settings import node_name

INDEX = 9
NAME = node_name(INDEX)
ROOT_DIR = "/run/odd/kubelet"
CGROUP_ROOT = "/odd"
AGENT = "gpupack-agent-odd"
GPUS = 2

OPERATOR = "/run/nvidia/driver"
GKE = "/home/kubernetes/bin/nvidia"
FOLDERS = {OPERATOR: ("usr/lib/x86_64-linux-gnu", "usr/bin"), GKE: ("lib64", "bin")}

MAKE_CGROUPS = f"""
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then mkdir -p /sys/fs/cgroup{CGROUP_ROOT}; else
  for each in /sys/fs/cgroup/*/; do mkdir -p "$each{CGROUP_ROOT}"; done
fi
mkdir -p {ROOT_DIR}
# The folder is the host's: what is put there must stay in this node.
mount -t tmpfs tmpfs /home
"""
MAKE_NODES = "mkdir -p {0}/dev && for n in 0 1 ctl -uvm; do mknod {0}/dev/nvidia$n c 1 3; done"


class OddCluster(Cluster):
    """The cluster, with one more node."""

    def _node(self, index: int) -> Node:
        found = super()._node(index)
        if index != INDEX:
            return found
        config = dataclasses.replace(
            found.config,
            kubelet_flags=(f"--root-dir={ROOT_DIR}", "--node-labels=type=virtual-kubelet"),
            kubelet_fields={"cgroupRoot": CGROUP_ROOT},
        )
        return Node(config, cgroups.host_cgroups())

    def add(self) -> None:
        """Boot the node; returns when it is Ready."""
        self._boot(INDEX)
        self.insist(MAKE_CGROUPS)
        self._start_daemons(INDEX)
        self._wait_ready([NAME], since=0)

    def remove(self) -> None:
        """Power the node off, and forget it."""
        self._retire([INDEX])

    def insist(self, script: str) -> str:
        """Run a script on the node."""
        done = self.execute(NAME, ["sh", "-ec", script])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install_driver(self, folder: str) -> None:
        """Put the stand-in where such a host has the driver."""
        power = self.node(NAME).first_process()
        assert power is not None
        root = pathlib.Path(f"/proc/{power.pid}/root{folder}")
        stand_in_driver.install(root, *FOLDERS[folder])

    def make_device_nodes(self, folder: str) -> None:
        """Make the device nodes below the driver's folder; they are /dev/null."""
        self.insist(MAKE_NODES.format(folder))


@contextlib.contextmanager
def odd_node(cluster: Cluster, system: Kube):
    """The node, and the cluster that knows it; nothing is left of it afterwards."""
    odd = OddCluster(cluster.settings)
    try:
        odd.add()
        yield odd
    finally:
        system.kubectl("delete", "daemonset", AGENT, "--ignore-not-found", "--wait=false")
        odd.remove()
        shutil.rmtree(cluster.settings.paths.node(NAME), ignore_errors=True)
        system.kubectl("delete", "gpunode", NAME, "--ignore-not-found")


def agent_of_its_own(system: Kube) -> None:
    """The chart's agent, with NVML and for this node; returns when it is ready."""
    command = [str(STATE / "bin/helm"), "template", "gpupack", str(ROOT / "charts/gpupack")]
    command += [f"--namespace={SYSTEM_NAMESPACE}", "--kube-version=1.36.3"]
    command += [f"--values={ROOT}/charts/gpupack/values-devcluster.yaml"]
    command += ["--set=agent.inventory=nvml,agent.excludedNodes.type=null"]
    command += [f"--set=agent.nodeSelector.kubernetes\\.io/hostname={NAME}"]
    command += ["--show-only=templates/agent/daemonset.yaml"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    agent = yaml.safe_load(done.stdout)
    agent["metadata"]["name"] = AGENT
    for labels in (
        agent["spec"]["selector"]["matchLabels"],
        agent["spec"]["template"]["metadata"]["labels"],
    ):
        labels["app.kubernetes.io/component"] = AGENT
    system.submit(agent)
    ready(system)


def ready(system: Kube) -> None:
    """Wait until the agent's pod is."""
    system.insist("rollout", "status", f"daemonset/{AGENT}", "--timeout=120s")


def restart_agent(system: Kube) -> None:
    """Restart the agent, as when a node boots with another driver."""
    system.insist("rollout", "restart", f"daemonset/{AGENT}")
    ready(system)


def status(kube: Kube):
    """Return the status of its GPUNode."""
    found = [each for each in kube.gpunodes() if each["metadata"]["name"] == NAME]
    return found[0].get("status", {}) if found else {}


def wait_gpus(kube: Kube) -> None:
    """Wait until the agent and the kubelet show the GPUs."""

    def shown():
        allocatable = kube.get("node", NAME)["status"]["allocatable"]
        return status(kube).get("gpus") == GPUS and allocatable.get("gpupack.dev/gpu") == str(GPUS)

    wait_for(shown, seconds=120, what=f"{GPUS} GPUs on {NAME}")


def in_agent(system: Kube, *command: str):
    """Run a command in the agent's container."""
    return system.kubectl("exec", f"daemonset/{AGENT}", "--", *command)
