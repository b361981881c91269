# SPDX-License-Identifier: Apache-2.0
"""gpupack's images lie in a registry on each node's loopback that demands credentials."""

import json
import pathlib

import private_registry
import pytest
from harness import StillWaiting, wait_for
from parts import OPERATOR, environment, environment_of

pytestmark = [pytest.mark.alone, pytest.mark.slow]

PORT = 5997
USER, PASSWORD = "puller", "open sesame"
SECRET = "registry-credentials"
SCRIPT = pathlib.Path(private_registry.__file__).read_text()
IMAGE = f"127.0.0.1:{PORT}/{private_registry.REPOSITORY}:1"
ON_NODES = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "type", "operator": "NotIn", "values": ["kwok"]}]}
            ]
        }
    }
}


@pytest.fixture
def registry(kube, system):
    """One on each node."""
    shown = json.loads(system.insist("get", OPERATOR, "-o", "json"))
    image = shown["spec"]["template"]["spec"]["containers"][0]["image"]
    container = {
        "name": "registry",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", SCRIPT, str(PORT), USER, PASSWORD],
    }
    labels = {"app": "registry"}
    pod = {"hostNetwork": True, "affinity": ON_NODES, "containers": [container]}
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "registry"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": pod | {"terminationGracePeriodSeconds": 1},
            },
        },
    }
    kube.submit(daemon_set)
    kube.insist("rollout", "status", "daemonset/registry", "--timeout=60s")


@pytest.fixture
def private(registry, system):
    """The operator as the chart makes it with image.pullSecrets."""
    pulled = {
        "GPUPACK_WORKLOAD_IMAGE": IMAGE,
        "GPUPACK_IMAGE_PULL_POLICY": "Always",
        "GPUPACK_IMAGE_PULL_SECRETS": SECRET,
    }
    assert "GPUPACK_IMAGE_PULL_POLICY" in environment_of(system, OPERATOR, "operator")
    with environment(system, OPERATOR, "operator", pulled):
        yield


HELLO = {
    "apiVersion": "gpupack.dev/v1beta1",
    "kind": "GPUJob",
    "metadata": {"name": "hello"},
    "spec": {"gpus": 1, "workload": {"name": "matmul"}},
}


@pytest.mark.usefixtures("private")
def test_a_job_names_the_missing_pull_secret_and_runs_once_it_exists(kube):
    """The job of NOTES.txt."""
    kube.submit(HELLO)
    wanted = f"Secret {SECRET} of namespace {kube.namespace}; check that it"

    def says():
        return wanted in kube.gpujob("hello").get("status", {}).get("message", "")

    try:
        wait_for(says, seconds=150, what="the job names the Secret that lacks")
    except StillWaiting:
        print(kube.insist("get", "gpujobs,pods", "-o", "yaml"))
        raise
    kube.insist(
        "create",
        "secret",
        "docker-registry",
        SECRET,
        f"--docker-server=127.0.0.1:{PORT}",
        f"--docker-username={USER}",
        f"--docker-password={PASSWORD}",
    )
    kube.wait_phase("hello", "Succeeded", seconds=240)
