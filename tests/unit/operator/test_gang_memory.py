# SPDX-License-Identifier: Apache-2.0
"""Gangs whose workers have a pod each: what lets NCCL pass data through memory."""

import pytest

from gpupack_crds import names
from gpupack_crds.worker_pods import WorkerPod
from gpupack_operator.manifests.gang_memory import with_gang_memory
from gpupack_operator.manifests.pod import PodDefaults, template

DEFAULTS = PodDefaults(workload_image="gpupack/workloads:1")
TOGETHER = (WorkerPod("a", (0,), ()), WorkerPod("a", (1,), ()))
APART = (WorkerPod("a", (0,), ()), WorkerPod("b", (1,), ()))


def made(build, pods, user=None, **spec):
    job = build.gpujob(**({"workers": 2, "gpus": 1} | spec), template=user)
    found = template(job, user or {}, attempt=2, defaults=DEFAULTS)
    changed = with_gang_memory(found, job, pods, attempt=2, container="worker")
    variables = {each["name"]: each for each in changed["spec"]["containers"][0]["env"]}
    return found, changed, variables


def test_workers_of_one_node_share_memory_and_a_host_id_for_nccl(build):
    _, changed, variables = made(build, TOGETHER)
    assert variables["NCCL_HOSTID"]["value"].startswith("$(GPUPACK_NODE)/")
    assert variables["NCCL_HOSTID"]["value"].endswith("/2")
    # The scheduler's Binding names the gang; the API server refuses a new pod that does.
    assert names.GANG_MEMORY_ANNOTATION not in changed["metadata"].get("annotations", {})
    assert variables["GPUPACK_NODE"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    named = list(variables)
    assert named.index("GPUPACK_NODE") < named.index("NCCL_HOSTID")


def test_nccl_does_not_try_nvlink_between_separate_pods(build):
    _, _, variables = made(build, TOGETHER)
    settings = {name: variables[name]["value"] for name in variables if name.startswith("NCCL_")}
    assert settings.items() >= {
        ("NCCL_P2P_DISABLE", "1"),
        ("NCCL_CUMEM_ENABLE", "0"),
        ("NCCL_CUMEM_HOST_ENABLE", "0"),
    }


def test_what_the_template_sets_stays(build):
    container = {"name": "worker", "image": "own:1", "env": [{"name": "NCCL_HOSTID", "value": "x"}]}
    _, _, variables = made(build, TOGETHER, {"spec": {"containers": [container]}})
    assert variables["NCCL_HOSTID"]["value"] == "x"


@pytest.mark.parametrize(
    ("pods", "spec"),
    [
        (APART, {}),
        (TOGETHER, {"gpus": 2}),
        (TOGETHER, {"gpus": None, "share": {"percent": 50, "memory": "10Gi"}}),
        (TOGETHER, {"workers": 3, "minWorkers": 2}),
        (TOGETHER, {"resourceName": "nvidia.com/gpu"}),
    ],
    ids=["on two nodes", "several GPUs each", "shares", "elastic", "another plugin's GPUs"],
)
def test_gangs_without_shared_memory_are_not_changed(build, pods, spec):
    found, changed, _ = made(build, pods, **spec)
    assert changed == found


def test_a_volume_of_the_template_at_dev_shm_is_not_shared(build):
    user = {"spec": {"volumes": [{"name": "shm", "hostPath": {"path": "/data"}}]}}
    found, changed, _ = made(build, TOGETHER, user)
    assert changed == found


@pytest.mark.parametrize(
    "part", [{"readOnly": True}, {"subPathExpr": "$(HOSTNAME)"}, {"subPath": "part"}], ids=str
)
def test_gang_memory_is_not_set_up_if_the_agent_would_not_mount_it(build, part):
    mount = {"name": "shm", "mountPath": "/dev/shm", **part}
    container = {"name": "worker", "image": "own:1", "volumeMounts": [mount]}
    found, changed, _ = made(build, TOGETHER, {"spec": {"containers": [container]}})
    assert changed == found


def test_gang_memory_has_the_size_of_all_workers_of_the_node(build):
    found, changed, _ = made(build, TOGETHER)
    sizes = [
        volume["emptyDir"]["sizeLimit"]
        for each in (found, changed)
        for volume in each["spec"]["volumes"]
        if volume["name"] == "shm"
    ]
    assert sizes == ["8Gi", "16Gi"]
