# SPDX-License-Identifier: Apache-2.0
"""Pods that request NVIDIA's resources run in a namespace that an administrator has labelled.

The workloads have the form that the documentation of each project shows, with other images.
"""

import pytest
from harness import annotated_devices
from manifests import JUDGE_IMAGE, controller

SLEEP = ["python3", "-S", "-c", "import signal; signal.sigwait([signal.SIGTERM])"]
TRANSLATED = "gpupack.dev/translated-from"


@pytest.fixture
def labelled(kube):
    kube.insist("label", "namespace", kube.namespace, "gpupack.dev/translate-resources=nvidia")
    return kube


def translated_from(pod):
    return pod["metadata"].get("annotations", {}).get(TRANSLATED, "")


def container(name, limits, requests=None, **fields):
    resources = {"limits": limits} | ({"requests": requests} if requests else {})
    return {"name": name, "image": JUDGE_IMAGE, "command": SLEEP, "resources": resources} | fields


def vllm():
    """A server with requests and limits, and shared memory."""
    limits = {"cpu": "1", "memory": "1G", "nvidia.com/gpu": "1"}
    requests = {"cpu": "10m", "memory": "64M", "nvidia.com/gpu": "1"}
    mount = {"name": "shm", "mountPath": "/dev/shm"}
    memory = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
    return {
        "containers": [container("vllm", limits, requests, volumeMounts=[mount])],
        "volumes": [memory],
    }


def triton():
    """A server of several GPUs that does not run as root."""
    return {
        "containers": [container("triton-inference-server", {"nvidia.com/gpu": "2"})],
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
    }


def kserve():
    """A predictor: an init container without GPUs, and a proxy next to the model."""
    return {
        "initContainers": [
            {"name": "storage-initializer", "image": JUDGE_IMAGE, "command": ["python3", "-V"]}
        ],
        "containers": [
            container("kserve-container", {"cpu": "1", "nvidia.com/gpu": "1"}),
            {"name": "queue-proxy", "image": JUDGE_IMAGE, "command": SLEEP},
        ],
    }


def ollama():
    """A server that tolerates the taint of nodes with GPUs."""
    return {
        "containers": [
            container(
                "ollama",
                {"nvidia.com/gpu": 1},
                env=[{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}],
            )
        ],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }


SERVERS = {"vllm": (vllm, 1), "triton": (triton, 2), "kserve": (kserve, 1), "ollama": (ollama, 1)}


@pytest.mark.usefixtures("idle")
def test_servers_as_their_projects_write_them_get_gpus_of_their_own(labelled):
    for name, (spec, _) in SERVERS.items():
        applied = labelled.apply(controller("Deployment", name, spec(), replicas=1))
        assert (applied.returncode, applied.stderr) == (0, "")
    held = []
    for name, (_, gpus) in SERVERS.items():
        (pod,) = labelled.wait_scale("deployment", name, seconds=120)
        assert len(annotated_devices(pod)) == gpus
        assert translated_from(pod).endswith(f": nvidia.com/gpu={gpus}")
        held += annotated_devices(pod)
    assert len(set(held)) == len(held)


def test_nothing_but_resources_scheduler_and_annotation_changes(labelled):
    labelled.submit({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "v"}, "spec": vllm()})
    pod = labelled.wait_pod("v", "Running", seconds=120)
    (ran,), (written,) = pod["spec"]["containers"], vllm()["containers"]
    assert pod["spec"]["schedulerName"] == "gpupack"
    assert ran["resources"]["limits"] == {"cpu": "1", "memory": "1G", "gpupack.dev/gpu": "1"}
    assert ran["resources"]["requests"] == {
        "cpu": "10m",
        "memory": "64M",
        "gpupack.dev/gpu": "1",
    }
    assert (ran["image"], ran["command"]) == (written["image"], written["command"])
    assert pod["spec"]["volumes"][0] == vllm()["volumes"][0]
    assert translated_from(pod) == "vllm: nvidia.com/gpu=1"


def hami(**limits):
    spec = {"containers": [container("c", {"nvidia.com/gpu": "1"} | limits)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "part"}, "spec": spec}


@pytest.mark.parametrize(
    ("parts", "percent", "isolation"),
    [
        ({"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}, "30", "limited"),
        ({"nvidia.com/gpumem": 3000}, "10", ""),
    ],
    ids=["memory and compute", "memory"],
)
def test_a_part_of_a_gpu_as_hami_writes_it_becomes_a_share(labelled, parts, percent, isolation):
    labelled.submit(hami(**parts))
    pod = labelled.wait_pod("part", "Running", seconds=120)
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {
        "gpupack.dev/gpu-share": "1",
        "gpupack.dev/gpu-percent": percent,
        "gpupack.dev/gpu-memory": "3000Mi",
    }
    assert pod["metadata"]["annotations"].get("gpupack.dev/isolation", "") == isolation


@pytest.mark.parametrize(
    "pod",
    [
        hami(**{"nvidia.com/gpumem-percentage": 50}),
        hami(**{"nvidia.com/gpumem": 3000} | {"nvidia.com/gpu": "2"}),
        {**hami(), "spec": {**hami()["spec"], "schedulerName": "example-scheduler"}},
    ],
    ids=["a percentage of memory", "parts of two GPUs", "another scheduler"],
)
def test_a_pod_without_a_counterpart_stays_as_it_is(labelled, pod):
    labelled.submit(pod)
    found = labelled.pod("part")
    assert translated_from(found) == ""
    asked = pod["spec"]["containers"][0]["resources"]["limits"]
    assert found["spec"]["containers"][0]["resources"]["limits"].keys() == asked.keys()


def test_without_the_label_nothing_is_translated_and_the_author_is_warned(kube):
    answer = kube.apply(controller("Deployment", "vllm", vllm(), replicas=0))
    assert "no node offers nvidia.com/gpu" in answer.stderr
