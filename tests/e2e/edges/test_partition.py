# SPDX-License-Identifier: Apache-2.0
"""Nodes that lose part or all of their network."""

import pytest
from harness import wait_for
from manifests import on_node
from node_faults import agent_down, agent_of, kubelet_down, powered_off
from parts import all_up, leader, pods_of_part
from pausing import pids_of, pod_paused


@pytest.fixture
def node(system, cluster):
    """A node without the leaders of operator and scheduler, whose survival is not tested here.

    The standbys come back to it, since two replicas do not share a node.
    """
    lost = cluster.nodes()[0]
    system.kubectl("cordon", lost)
    try:
        for part in ("operator", "scheduler"):
            for pod in pods_of_part(system, part):
                if pod["spec"].get("nodeName") == lost:
                    system.delete("pod", pod["metadata"]["name"])
        for part in ("operator", "scheduler"):
            wait_for(
                lambda part=part: leads_elsewhere(system, part, lost),
                seconds=60,
                what=f"a leader of {part} on another node",
            )
    finally:
        system.kubectl("uncordon", lost)
    all_up(system)
    return lost


def leads_elsewhere(system, part, node):
    found = leader(system, part)
    return bool(found) and found["spec"].get("nodeName") not in {None, node}


@pytest.fixture
def first_there(kube, node, judged):
    """Return a job whose first attempt runs on the node; later ones may run anywhere."""
    for other in kube.nodes():
        if other != node:
            kube.kubectl("cordon", other)
    try:
        kube.submit(judged.job("job", gpus=2, seconds=300))
        kube.wait_phase("job", "Running")
    finally:
        for other in kube.nodes():
            kube.kubectl("uncordon", other)
    (pod,) = kube.pods("job")
    assert pod["spec"]["nodeName"] == node
    return pod


def hands_out(kube, node):
    path = r"jsonpath={.status.allocatable.gpupack\.dev/gpu}"
    return kube.kubectl("get", "node", node, "-o", path).stdout


def test_with_a_dead_kubelet_and_a_live_agent_workers_continue_without_a_second_attempt(
    kube, cluster, first_there, judged, refusals
):
    node = first_there["spec"]["nodeName"]
    with kubelet_down(cluster, node):
        kube.wait_reason("job", "WorkersTerminating", seconds=60)
        kube.submit(judged.job("big", gpus=8, seconds=15), on_node(judged.job("here"), node))
        elsewhere = kube.wait_phase("big", "Succeeded")
        assert elsewhere["status"]["nodes"] != node
        assert kube.phase("here") == "Pending"
        assert kube.gpujob("job")["status"]["attempt"] == 1
        assert pids_of(cluster, first_there, "judge.py")
    wait_for(lambda: kube.gpujob("job")["status"]["attempt"] == 2, seconds=60, what="attempt 2")
    kube.wait_phase("job", "Running")
    kube.wait_phase("here", "Succeeded")
    assert refusals() == []


def test_without_an_agent_workers_run_on_and_new_ones_go_elsewhere_until_it_is_back(
    kube, system, cluster, first_there, judged, refusals
):
    node = first_there["spec"]["nodeName"]
    with agent_down(system, node):
        wait_for(lambda: hands_out(kube, node) == "0", seconds=60, what="no tickets are left")
        kube.submit(judged.job("elsewhere", gpus=4), on_node(judged.job("here"), node))
        assert kube.wait_phase("elsewhere", "Succeeded")["status"]["nodes"] != node
        assert kube.phase("here") == "Pending"
        assert pids_of(cluster, first_there, "judge.py")
    kube.wait_phase("here", "Succeeded")
    assert kube.gpujob("job")["status"]["attempt"] == 1
    assert kube.phase("job") == "Running"
    assert refusals() == []


def test_while_an_agent_hangs_new_workers_wait_and_they_start_when_it_goes_on(
    kube, system, cluster, first_there, judged, refusals
):
    node = first_there["spec"]["nodeName"]
    with pod_paused(cluster, agent_of(system, node), "gpupack_agent run"):
        kube.submit(on_node(judged.job("here"), node), judged.job("big", gpus=8))
        assert kube.wait_phase("big", "Succeeded")["status"]["nodes"] != node
        assert kube.phase("here") == "Admitted"
        assert pids_of(cluster, first_there, "judge.py")
    kube.wait_phase("here", "Succeeded")
    assert kube.gpujob("job")["status"]["attempt"] == 1
    assert refusals() == []


def test_after_a_power_cut_the_job_starts_again_elsewhere_and_the_node_works_when_it_is_back(
    kube, cluster, first_there, judged, refusals
):
    node = first_there["spec"]["nodeName"]
    with powered_off(cluster, node):
        wait_for(lambda: kube.gpujob("job")["status"]["attempt"] == 2, seconds=75, what="attempt 2")
        job = kube.wait_phase("job", "Running")
        assert job["status"]["nodes"] != node
        assert job["status"]["attempts"][0]["outcome"] == "Infrastructure"
    wait_for(lambda: len(kube.pods("job")) == 1, seconds=60, what="the lost pod is gone")
    kube.submit(on_node(judged.job("here", gpus=8), node))
    kube.wait_phase("here", "Succeeded", seconds=90)
    assert refusals() == []
