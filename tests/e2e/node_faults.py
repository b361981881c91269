# SPDX-License-Identifier: Apache-2.0
"""Break a node in one way for a while; each way ends by itself, whatever became of the test."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from harness import Kube, wait_for
from parts import pods_of_part
from pausing import pids_of

from gpupack_devcluster.driver import ClusterDriver, NodeComponent

AWAY = "type=kwok"
"""A label that the agents' node affinity avoids (agent.excludedNodes in the chart's values)."""


CDI = "/var/run/cdi"
SLOTS_PER_GPU = 20
FILLER = "/run/filler"
SPARE_BYTES = 1 << 20
"""Others may write between measuring and shrinking; the filler takes what they leave."""


@contextlib.contextmanager
def kubelet_down(cluster: ClusterDriver, node: str) -> Iterator[None]:
    """The kubelet is dead; containers, containerd and the agent go on."""
    cluster.kill(node, NodeComponent.KUBELET)
    try:
        yield
    finally:
        cluster.start(node, NodeComponent.KUBELET)


@contextlib.contextmanager
def powered_off(cluster: ClusterDriver, node: str) -> Iterator[None]:
    """The whole node is off."""
    cluster.power_off(node)
    try:
        yield
    finally:
        cluster.power_on(node)


@contextlib.contextmanager
def agent_down(system: Kube, node: str) -> Iterator[None]:
    """The node's agent is gone and does not come back; the kubelet goes on."""
    _label(system, node, AWAY)
    try:
        wait_for(lambda: agent_of(system, node) is None, seconds=30, what=f"no agent on {node}")
        yield
    finally:
        _label(system, node, AWAY.partition("=")[0] + "-")


@contextlib.contextmanager
def unkillable(cluster: ClusterDriver, pod: dict[str, Any]) -> Iterator[None]:
    """No signal reaches the pod's processes any more, as if they hung in a driver.

    Their containerd-shim, through which signals go, is stopped.
    """
    node = pod["spec"]["nodeName"]
    shims = {parent_of(cluster, node, pid) for pid in pids_of(cluster, pod, "judge.py")}
    assert shims, f"nothing of {pod['metadata']['name']} runs"
    in_node(cluster, node, "kill", "-STOP", *shims)
    try:
        yield
    finally:
        in_node(cluster, node, "kill", "-CONT", *shims)


@contextlib.contextmanager
def cdi_read_only(cluster: ClusterDriver, system: Kube, node: str) -> Iterator[None]:
    """The node's agent cannot write CDI specs; one that restarts can."""
    agent = agent_of(system, node)
    assert agent is not None, f"no agent on {node}"
    (pid, *_) = pids_of(cluster, agent, "gpupack_agent run")
    in_node(cluster, node, *remount(pid, "ro"))
    try:
        yield
    finally:
        cluster.execute(node, remount(pid, "rw"))


def remount(pid: str, mode: str) -> list[str]:
    """Command line that remounts the CDI folder as the process with this identifier sees it."""
    enter = ["nsenter", f"--target={pid}", "--mount", "--"]
    return [*enter, "mount", "-o", f"remount,bind,{mode}", CDI]


@contextlib.contextmanager
def run_full(cluster: ClusterDriver, node: str) -> Iterator[None]:
    """The node's /run, in memory, with CDI specs and containerd's state, has no space left."""
    size, used = (
        int(in_node(cluster, node, "df", f"--output={column}", "-B1", "/run").split()[-1])
        for column in ("size", "used")
    )
    in_node(cluster, node, "mount", "-o", f"remount,size={used + SPARE_BYTES}", "/run")
    try:
        cluster.execute(node, ["dd", "if=/dev/zero", f"of={FILLER}", "bs=4096"])
        yield
    finally:
        in_node(cluster, node, "mount", "-o", f"remount,size={size}", "/run")
        in_node(cluster, node, "rm", "-f", FILLER)


def parent_of(cluster: ClusterDriver, node: str, pid: str) -> str:
    """The parent of a node's process."""
    return in_node(cluster, node, "awk", "/^PPid:/ {print $2}", f"/proc/{pid}/status").strip()


def in_node(cluster: ClusterDriver, node: str, *command: str) -> str:
    """Run a command in a node; it must end well."""
    done = cluster.execute(node, command)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def agent_of(system: Kube, node: str) -> dict[str, Any] | None:
    """The pod of a node's agent, if there is one."""
    pods = pods_of_part(system, "agent")
    return next((pod for pod in pods if pod["spec"].get("nodeName") == node), None)


def gpus_ready(system: Kube, node: str) -> str:
    """Why a node does not hand out all its GPUs; empty when it does."""
    found = json.loads(system.kubectl("get", "node", node, "-o", "json").stdout)
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    if conditions["Ready"] != "True":
        return f"{node} is not Ready"
    (gpus,) = (each for each in system.gpunodes() if each["metadata"]["name"] == node)
    count, healthy = gpus["status"]["gpus"], gpus["status"]["healthy"]
    handed_out = [
        found["status"]["allocatable"].get(f"gpupack.dev/{name}", "0")
        for name in ("gpu", "gpu-share")
    ]
    if healthy != count or handed_out != [str(count), str(SLOTS_PER_GPU * count)]:
        return f"{node} has {healthy} of {count} GPUs, {handed_out} tickets and slots"
    return ""


def lingering(system: Kube, nodes: Sequence[str]) -> list[str]:
    """Pods that the API does not know any more and whose processes hold GPUs."""
    return [
        f"{holder['namespace']}/{holder['name']}"
        for gpus in system.gpunodes()
        if gpus["metadata"]["name"] in nodes
        for holder in gpus["status"].get("holders", ())
    ]


def waiting_because(kube: Kube, text: str) -> str | None:
    """Return the message of a pod that cannot start for this reason; None if no pod has it."""
    said = (
        status["state"].get("waiting", {}).get("message", "")
        for pod in kube.pods()
        for status in pod["status"].get("containerStatuses", ())
    )
    return next((message for message in said if text in message), None)


def _label(system: Kube, node: str, label: str) -> None:
    done = system.kubectl("label", "node", node, "--overwrite", label)
    assert done.returncode == 0, done.stderr
