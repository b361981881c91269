# SPDX-License-Identifier: Apache-2.0
"""Pods without GPUs whose memory is resized in place next to GPUJobs.

They are on one node and request parts of its memory, so the test needs no other facts of it.
"""

import json

import pytest
from harness import pod_condition, wait_for
from manifests import JUDGE_IMAGE, on_node

pytestmark = pytest.mark.alone


@pytest.fixture
def node(kube):
    return kube.nodes()[0]


@pytest.fixture
def part_of(kube, node):
    """This part of the node's memory, in MiB."""
    allocatable = kube.get("node", node)["status"]["allocatable"]["memory"]
    return lambda part: f"{int(int(allocatable.removesuffix('Ki')) / 1024 * part)}Mi"


def holder(name, node, memory):
    container = {
        "name": "holder",
        "image": JUDGE_IMAGE,
        "command": ["sleep", "600"],
        "resources": {"requests": {"memory": memory}},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return on_node({**pod, "spec": spec}, node)


def running(kube, name, node, memory):
    kube.submit(holder(name, node, memory))
    kube.wait_pod(name, "Running")


def resize(kube, name, memory):
    wanted = {"name": "holder", "resources": {"requests": {"memory": memory}}}
    patch = json.dumps({"spec": {"containers": [wanted]}})
    return kube.kubectl("patch", "pod", name, "--subresource=resize", "-p", patch)


def job(judged, name, node, memory):
    found = judged.job(name)
    requests = {"requests": {"memory": memory}}
    found["spec"]["template"]["spec"]["containers"][0]["resources"] = requests
    return on_node(found, node)


def waits_for_memory(kube, name):
    def lacks_memory():
        return "of memory free" in kube.gpujob(name).get("status", {}).get("message", "")

    wait_for(lacks_memory, seconds=30, what="the status says that memory is lacking")


def test_a_pod_that_shrinks_frees_memory_for_a_job(kube, judged, node, part_of):
    running(kube, "large", node, part_of(0.6))
    kube.submit(job(judged, "train", node, part_of(0.5)))
    waits_for_memory(kube, "train")
    assert resize(kube, "large", part_of(0.1)).returncode == 0
    kube.wait_phase("train", "Succeeded", seconds=90)


@pytest.mark.slow
def test_a_deferred_resize_reserves_memory_until_it_is_withdrawn(kube, judged, node, part_of):
    for name in ("grows", "in-its-way"):
        running(kube, name, node, part_of(0.3))
    assert resize(kube, "grows", part_of(0.8)).returncode == 0

    def deferred():
        return pod_condition(kube.pod("grows"), "PodResizePending").get("reason") == "Deferred"

    wait_for(deferred, seconds=60, what="the kubelet defers the resize")
    kube.submit(job(judged, "train", node, part_of(0.2)))
    waits_for_memory(kube, "train")
    assert resize(kube, "grows", part_of(0.3)).returncode == 0
    kube.wait_phase("train", "Succeeded", seconds=90)


@pytest.mark.slow
def test_a_resize_that_no_node_can_do_takes_nothing_from_jobs(kube, judged, node, part_of):
    running(kube, "greedy", node, part_of(0.2))
    refused = resize(kube, "greedy", part_of(2))
    if refused.returncode == 0:

        def infeasible():
            condition = pod_condition(kube.pod("greedy"), "PodResizePending")
            return condition.get("reason") == "Infeasible"

        wait_for(infeasible, seconds=60, what="the kubelet refuses the resize")
    kube.submit(job(judged, "train", node, part_of(0.3)))
    kube.wait_phase("train", "Succeeded", seconds=90)
