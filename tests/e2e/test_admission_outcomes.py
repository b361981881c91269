# SPDX-License-Identifier: Apache-2.0
"""What admission cannot see ends at the node: the container does not start, or sees only its own.

docs/adr/0011 says why each of these is not refused earlier.
"""

import json

import pytest
from admission import asking, pod, sharing
from harness import DEVICES_ANNOTATION, wait_for

from gpupack_crds.names import ISOLATION_ANNOTATION

KEPT = (
    "GPUPACK_DEVICES",
    "GPUPACK_DEVICE_PERCENT",
    "GPUPACK_DEVICE_MEMORY_MIB",
    "GPUPACK_DEVICE_ISOLATION",
    "GPUPACK_SIMULATED",
    "NVIDIA_VISIBLE_DEVICES",
)
TELL = "import json, os; print(json.dumps(dict(os.environ)))"


def telling(container, annotations=None):
    """Build a pod whose container prints its environment, with variables of a forged ConfigMap."""
    command = {"command": ["python3", "-S", "-c", TELL]}
    source = {"envFrom": [{"configMapRef": {"name": "forged"}}]}
    return pod(
        container | command | source,
        annotations=annotations,
        schedulerName="gpupack",
        restartPolicy="Never",
    )


def forged_settings():
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "forged"},
        "data": dict.fromkeys(KEPT, "forged") | {"NVIDIA_VISIBLE_DEVICES": "all", "OTHER": "a"},
    }


def one(kube, name="idle"):
    return json.loads(kube.kubectl("get", "pod", name, "--output=json").stdout)


@pytest.mark.parametrize(
    ("container", "isolation", "annotations"),
    [
        (asking(), "exclusive", {}),
        (sharing(), "cooperative", {}),
        (sharing(), "limited", {ISOLATION_ANNOTATION: "limited"}),
    ],
    ids=["whole", "share", "limited"],
)
def test_forged_variables_are_overridden(kube, container, isolation, annotations):
    kube.submit(forged_settings(), telling(container, annotations))
    ended = "--for=jsonpath={.status.phase}=Succeeded"
    done = kube.kubectl("wait", "pod/idle", ended, "--timeout=60s")
    assert done.returncode == 0, done.stderr
    seen = json.loads(kube.kubectl("logs", "idle").stdout)
    (device,) = json.loads(one(kube)["metadata"]["annotations"][DEVICES_ANNOTATION])
    assert {name: seen[name] for name in (*KEPT, "OTHER")} == {
        "GPUPACK_DEVICES": device["uuid"],
        "GPUPACK_DEVICE_PERCENT": str(device["percent"]),
        "GPUPACK_DEVICE_MEMORY_MIB": str(device["memoryMiB"]),
        "GPUPACK_DEVICE_ISOLATION": isolation,
        "GPUPACK_SIMULATED": "true",
        "NVIDIA_VISIBLE_DEVICES": "void",
        "OTHER": "a",
    }


def bind(kube, node):
    """Bind a pod as a user with the right to bind pods that is not gpupack's scheduler."""
    path = f"/api/v1/namespaces/{kube.namespace}/pods/idle/binding"
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "idle"},
        "target": {"kind": "Node", "name": node},
    }
    done = kube.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    assert done.returncode == 0, done.stderr


def waits_for(kube, text):
    """The one container's reason for not starting, once it says this."""
    statuses = one(kube)["status"].get("containerStatuses", [])
    waiting = statuses[0]["state"].get("waiting", {}) if statuses else {}
    return waiting if text in waiting.get("message", "") else None


NEAR_NO_POD = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "no-pod"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
"""Affinity that keeps a scheduler from binding a pod and that a kubelet ignores."""


@pytest.mark.alone
@pytest.mark.parametrize(
    "container",
    [
        pytest.param(asking(), id="whole"),
        pytest.param(sharing(), id="share", marks=pytest.mark.slow),
    ],
)
def test_a_pod_that_a_user_binds_gets_device_tokens_but_never_starts(kube, cluster, container):
    command = {"command": ["sleep", "1000"]}
    kube.submit(pod(container | command, schedulerName="gpupack", affinity=NEAR_NO_POD))
    bind(kube, cluster.nodes()[0])
    refused = wait_for(
        lambda: waits_for(kube, "it was not bound by gpupack"),
        seconds=60,
        what="the agent refuses the container",
    )
    assert refused["reason"] == "CreateContainerConfigError"
    (status,) = one(kube)["status"]["containerStatuses"]
    assert (status["started"], status.get("containerID")) == (False, None)
