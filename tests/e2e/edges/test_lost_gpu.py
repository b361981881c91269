# SPDX-License-Identifier: Apache-2.0
"""A GPU that disappears while a pod holds it."""

import json

import pytest
import yaml
from harness import annotated_devices, placed, wait_for
from manifests import on_node
from node_faults import agent_of
from pausing import pids_of


@pytest.fixture
def node(cluster):
    return cluster.nodes()[0]


@pytest.fixture
def inventory(system, node):
    """Sets how many GPUs the node has, as its agent finds them; all of them afterwards."""
    config = json.loads(system.kubectl("get", "configmap", "gpupack-agent", "-o", "json").stdout)
    before = config["data"]["simulated.yaml"]
    (everywhere,) = yaml.safe_load(before)["nodes"]
    (gpu,) = everywhere["devices"]

    def write(text):
        patch = json.dumps({"data": {"simulated.yaml": text}})
        done = system.kubectl("patch", "configmap", "gpupack-agent", "--type=merge", "-p", patch)
        assert done.returncode == 0, done.stderr
        # The kubelet renews the file when it looks at the pod, which a change to it brings about.
        agent = agent_of(system, node)["metadata"]["name"]
        system.kubectl("annotate", "pod", agent, "--overwrite", f"test/inventory={len(text)}")

    def has(count):
        here = {"match": node, "devices": [gpu | {"count": count}]}
        write(yaml.safe_dump({"nodes": [here, everywhere]}))

    yield has
    write(before)


def graded(kube, node, index):
    """Health and cause of one GPU, as its GPUNode tells them."""
    (gpus,) = (each for each in kube.gpunodes() if each["metadata"]["name"] == node)
    (device,) = (each for each in gpus["status"]["devices"] if each["index"] == index)
    return device["health"], device.get("cause", "")


def test_a_held_gpu_that_disappears_stays_its_workers_and_gets_no_work_until_it_is_back(
    kube, cluster, node, inventory, judged, refusals
):
    kube.submit(on_node(judged.job("most", gpus=7, seconds=300), node))
    kube.wait_phase("most", "Running")
    kube.submit(on_node(judged.job("holder", gpus=1, seconds=300), node))
    kube.wait_phase("holder", "Running")
    (holder,) = kube.pods("holder")
    (lost,) = annotated_devices(holder)
    assert lost.endswith("-7")
    inventory(7)
    wait_for(lambda: graded(kube, node, 7)[0] == "Failed", seconds=60, what="the loss is told")
    assert "no longer finds this GPU" in graded(kube, node, 7)[1]
    assert kube.phase("holder") == "Running"
    assert pids_of(cluster, holder, "judge.py")
    kube.delete("gpujob", "holder")
    kube.submit(*(on_node(judged.job(f"wants-{gpus}", gpus=gpus), node) for gpus in (1, 8)))
    waits_because(kube, "wants-1", "fewer than 1 free GPU")
    waits_because(kube, "wants-8", "too few healthy GPUs (most healthy on one node: 7)")
    kube.delete("gpujob", "most")
    assert lost not in given(kube.wait_phase("wants-1", "Succeeded"))
    inventory(8)
    assert lost in given(kube.wait_phase("wants-8", "Succeeded"))
    assert graded(kube, node, 7) == ("Healthy", "")
    assert refusals() == []


def waits_because(kube, name, text):
    def look():
        status = kube.gpujob(name).get("status", {})
        return status.get("phase") == "Pending" and text in status["message"]

    wait_for(look, seconds=60, what=f"{name} waits because of {text}")


def given(job):
    """UUIDs of the GPUs of a job's only worker."""
    (worker,) = placed(job)
    return [device.uuid for device in worker.devices]
