# SPDX-License-Identifier: Apache-2.0
"""What no plan knows of: a node of which kube-scheduler's own filters say no."""

import pathlib

import pytest
from harness import wait_for
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


@pytest.mark.slow
@pytest.mark.alone
def test_no_container_of_a_gang_starts_while_one_worker_is_refused(kube, judged):
    nodes = kube.nodes()
    kube.submit(holder(nodes[0]))
    kube.wait_pod("holder", "Running")
    spread = {"oneWorkerPerNode": True}
    gang = with_port(judged.job("gang", workers=len(nodes), spread=spread))
    (container,) = gang["spec"]["template"]["spec"]["containers"]
    container["command"] = ["sh", "-c", f"touch /locks/{kube.namespace}-$NODE"]
    kube.submit(gang)

    def started():
        return {path.name for path in pathlib.Path(judged.locks).glob(f"{kube.namespace}-*")}

    def given_up():
        first = kube.gpujob("gang").get("status", {}).get("attempts", [{}])[0]
        assert not started()
        return first if first.get("finishedAt") else None

    refused = wait_for(given_up, seconds=120, what="the attempt is given up")
    assert (refused["reason"], refused["fault"]["node"]) == ("BindTimeout", nodes[0])
    assert refused["message"].startswith(f"0 of {len(nodes)} workers were bound")
    assert "free ports" in refused["message"]
    kube.delete("pod", "holder", "--grace-period=1", "--wait=false")
    kube.wait_phase("gang", "Succeeded", seconds=120)
    assert started() == {f"{kube.namespace}-{node}" for node in nodes}
    for name in started():
        (pathlib.Path(judged.locks) / name).unlink()
