# SPDX-License-Identifier: Apache-2.0
"""A node where stand-ins for other device plugins hand out GPUs, and pods that request them.

Those (observed/stand_in.py) speak the kubelet's API as NVIDIA's plugin does.
"""

import contextlib
import dataclasses
import pathlib

from fixtures import namespace
from harness import Kube, wait_for
from manifests import AGENT_IMAGE, JUDGE_IMAGE, gpujob
from parts import pods_of_part, rolled_out

OURS = "gpupack.dev/gpu"
THEIRS = "nvidia.com/gpu"
GPUS = 8
SCRIPT = pathlib.Path(__file__).parent / "observed/stand_in.py"
SLEEP = ["python3", "-S", "-c", "import time; time.sleep(3600)"]
AT_ONCE = {"terminationGracePeriodSeconds": 1}


@dataclasses.dataclass(frozen=True)
class Stand:
    """The node where the stand-in serves, and the stand-in."""

    kube: Kube
    system: Kube
    node: str
    ids: tuple[str, ...]

    def gpunode(self):
        """Return the agent's status of the node; nothing while the GPUNode is missing."""
        found = [each for each in self.kube.gpunodes() if each["metadata"]["name"] == self.node]
        return found[0].get("status", {}) if found else {}

    def mode(self):
        """Return which plugin hands out the node's GPUs."""
        return self.gpunode().get("mode", "owned")

    def allocatable(self, resource):
        """Return the allocatable amount of a resource by the kubelet."""
        return int(self.kube.get("node", self.node)["status"]["allocatable"].get(resource, 0))

    def wait_allocatable(self, resource, count):
        """Wait until it is so much."""
        wait_for(
            lambda: self.allocatable(resource) == count,
            seconds=120,
            what=f"{count} {resource} on {self.node}",
        )

    def holders(self):
        """Return the held GPUs of the node by pod, from its GPUNode."""
        return {
            each["name"]: [device["uuid"] for device in each.get("devices", [])]
            for each in self.gpunode().get("holders", [])
        }

    def start(self):
        """Start the stand-in where it does not run, and wait until it serves."""
        self.serve("stand-in", THEIRS, self.ids)
        self.wait_observed()

    def wait_observed(self):
        """Wait until the agent says that other plugins serve the node."""
        wait_for(lambda: self.mode() == "observed", seconds=30, what=f"{self.node} is observed")

    def serve(self, name, resource, ids):
        """Hand out these ids, and wait until the kubelet does."""
        script = {"stand_in.py": SCRIPT.read_text()}
        self.kube.submit(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "stand-in"},
                "data": script,
            },
            self._pod(name, resource, ids),
        )
        self.wait_allocatable(resource, len(ids))

    def stop(self, name="stand-in", resource=THEIRS):
        """End a stand-in, and wait until the kubelet has noticed."""
        self.kube.insist("delete", "pod", name, "--ignore-not-found")
        self.wait_allocatable(resource, 0)

    def restart_agent(self):
        """Replace the node's agent, and wait until the new one is ready."""
        agents = pods_of_part(self.system, "agent")
        (old,) = [pod for pod in agents if pod["spec"]["nodeName"] == self.node]
        self.system.insist("delete", "pod", old["metadata"]["name"])
        rolled_out(self.system, "daemonset/gpupack-agent")

    def give_back(self):
        """Do what an administrator does after removing the other plugin."""
        self.stop()
        self.kube.insist("delete", "gpunode", self.node, "--ignore-not-found")
        self.restart_agent()
        self.wait_allocatable(OURS, GPUS)

    def _pod(self, name, resource, ids):
        sockets = {"path": "/var/lib/kubelet/device-plugins", "type": "Directory"}
        container = {
            "name": "stand-in",
            "image": AGENT_IMAGE,
            "command": ["python", "/stand-in/stand_in.py", resource, *ids],
            "volumeMounts": [
                {"name": "script", "mountPath": "/stand-in"},
                {"name": "sockets", "mountPath": sockets["path"]},
            ],
        }
        spec = {
            "nodeName": self.node,
            "terminationGracePeriodSeconds": 5,
            "securityContext": {"runAsUser": 0},
            "containers": [container],
            "volumes": [
                {"name": "script", "configMap": {"name": "stand-in"}},
                {"name": "sockets", "hostPath": sockets},
            ],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@contextlib.contextmanager
def last_node(cluster, system):
    """The last node, for stand-ins; afterwards it is ours again."""
    with namespace(cluster, "stand-in") as kube:
        # A device plugin reaches for its node's sockets, which tenants may not.
        level = "pod-security.kubernetes.io/enforce=privileged"
        kube.insist("label", "namespace", kube.namespace, level)
        node = cluster.nodes()[-1]
        ids = [device["uuid"] for device in kube.get("gpunode", node)["status"]["devices"]]
        stand = Stand(kube, system, node, tuple(ids))
        try:
            yield stand
        finally:
            stand.give_back()


def container(name, gpus, resource=THEIRS):
    return {
        "name": name,
        "image": JUDGE_IMAGE,
        "command": SLEEP,
        "resources": {"limits": {resource: str(gpus)}},
    }


def job(name, *, workers=1, gpus=1, **spec):
    """A GPUJob that holds its GPUs until it is deleted."""
    worker = {key: value for key, value in container("worker", gpus).items() if key != "resources"}
    rights = {"runAsUser": 0, "runAsNonRoot": False}
    pod = {"containers": [worker], "securityContext": rights, **AT_ONCE}
    return gpujob(name, workers=workers, gpus=gpus, template={"spec": pod}, **spec)


def pod(name, gpus, *, resource=THEIRS, **spec):
    """A pod of its own that holds GPUs of another plugin until it is deleted."""
    body = {"containers": [container("holds", gpus, resource)], **AT_ONCE, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}
