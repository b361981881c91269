# SPDX-License-Identifier: Apache-2.0
"""What no plan knows of: a node of which kube-scheduler's own filters say no."""

import pytest
from manifests import JUDGE_IMAGE, on_node

PORT = 18412


def with_port(job):
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["ports"] = [{"containerPort": PORT, "hostPort": PORT}]
    return job


def holder(node):
    """A pod that has the port of a node, so that no other pod with that port can be there."""
    container = {
        "name": "holder",
        "image": JUDGE_IMAGE,
        "command": ["sleep", "600"],
        "ports": [{"containerPort": PORT, "hostPort": PORT}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "holder"}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return on_node({**pod, "spec": spec}, node)


@pytest.mark.slow
@pytest.mark.alone
def test_a_node_that_kube_scheduler_refuses_is_named_and_the_next_attempt_avoids_it(kube, judged):
    kube.submit(with_port(judged.job("first")))
    node = kube.wait_phase("first", "Succeeded")["status"]["attempts"][0]["nodes"]
    kube.submit(holder(node))
    kube.wait_pod("holder", "Running")
    kube.submit(with_port(judged.job("second")))
    job = kube.wait_phase("second", "Succeeded", seconds=150)
    refused, ran = job["status"]["attempts"]
    assert (refused["nodes"], refused["reason"]) == (node, "BindTimeout")
    assert (refused["fault"]["worker"], refused["fault"]["node"]) == (0, node)
    assert f"worker 0, planned on node {node}" in refused["message"]
    assert "free ports" in refused["message"]
    assert ran["nodes"] != node
