# SPDX-License-Identifier: Apache-2.0
"""`gpupack explain pod/NAME` of a bound pod, as a process."""

import asyncio
import json

import pytest
from command_process import CLI, in_pipe

PODS = "/api/v1/namespaces/default/pods"
DEVICES = [
    {"uuid": "GPU-1", "percent": 100, "memoryMiB": 81559},
    {"uuid": "GPU-2", "percent": 40, "memoryMiB": 8192},
]


def pod(name, *, node="gpu-1", phase="Running", devices=DEVICES, labels=None):
    condition = {"type": "PodScheduled", "status": "True" if node else "False"}
    condition |= {"lastTransitionTime": "2026-11-25T10:00:00Z"}
    condition |= {} if node else {"reason": "Unschedulable", "message": "2 Insufficient cpu"}
    annotations = {"gpupack.dev/devices": json.dumps(devices)} if devices else {}
    meta = {"namespace": "default", "name": name, "uid": name, "labels": labels or {}}
    return {
        "metadata": meta | {"annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": phase, "conditions": [condition]},
    }


@pytest.fixture
async def explained(server):
    async def ended(found, *arguments):
        name = found["metadata"]["name"]
        server.put(f"{PODS}/{name}", found)
        command = [*CLI, "explain", f"pod/{name}", *arguments]
        return await asyncio.to_thread(in_pipe, command, KUBECONFIG=server.kubeconfig)

    return ended


async def test_a_running_pod_is_explained_with_its_node_and_gpus(explained):
    done = await explained(pod("notebook"))
    assert (done.status, done.out.splitlines()) == (
        0,
        [
            "pod default/notebook is Running: on gpu-1 since 2026-11-25T10:00:00Z",
            "  GPUs: GPU-1, GPU-2 (40%)",
        ],
    )


async def test_a_document_has_the_same_data(explained):
    found = json.loads((await explained(pod("notebook"), "-o", "json")).out)["placed"]
    assert (found["node"], found["gpus"]) == ("gpu-1", ["GPU-1", "GPU-2 (40%)"])
    assert found["since"] == "2026-11-25T10:00:00Z"


async def test_a_finished_pod_holds_no_gpu(explained):
    done = await explained(pod("old", phase="Succeeded"))
    assert done.out.splitlines() == [
        "pod default/old is Succeeded: it was on gpu-1 from 2026-11-25T10:00:00Z",
        "  GPUs that it has released: GPU-1, GPU-2 (40%)",
    ]


async def test_a_workers_pod_names_its_job(explained):
    done = await explained(pod("train-1-0", devices=None, labels={"gpupack.dev/job": "train"}))
    assert done.out.splitlines()[1:] == [
        "  GPUs: none from gpupack; on observed nodes another device plugin assigns them",
        "  It is a worker of GPUJob train: gpupack explain train",
    ]
