# SPDX-License-Identifier: Apache-2.0
"""The node that runs both leaders, and a worker, loses power.

On the dev cluster a new operator leads after its Lease of 10 s and a check every 2 s. A scheduler
leads after 4 s and a check every second, and it decides 5 s later (planHoldSeconds). The node is
NotReady after 8 s, and its pods are evicted 5 s after that. By then the Leases of agent and
kubelet, 8 s and 4 s, show that it is dead. So attempt 2 can be planned some 15 s after the cut; the
rest of the bounds allows for a busy machine.
"""

import json
import time

import pytest
from harness import wait_for
from node_faults import powered_off
from parts import all_up, leader, plan_addresses, pods_of_part

LEADER_SECONDS = 20
ELSEWHERE_SECONDS = 45


@pytest.fixture
def lost(system):
    """Return the node that runs the leading operator and the leading scheduler."""
    node = leader(system, "scheduler")["spec"]["nodeName"]
    led = leader(system, "operator")
    if led["spec"]["nodeName"] != node:
        # The leader releases its Lease when it ends; its standby is on the other node.
        system.delete("pod", led["metadata"]["name"])
        wait_for(lambda: leads_on(system, "operator", node), seconds=60, what=f"it leads on {node}")
    all_up(system)
    assert leads_on(system, "operator", node)
    assert leads_on(system, "scheduler", node)
    return node


def leads_on(system, component, node):
    found = leader(system, component)
    return found is not None and found["spec"]["nodeName"] == node


def leads_elsewhere(system, component, node):
    found = leader(system, component)
    return found is not None and found["spec"]["nodeName"] != node


@pytest.fixture
def running_there(kube, lost, judged):
    """Return a job whose first attempt runs on that node; later ones may run anywhere."""
    others = [node for node in kube.nodes() if node != lost]
    for other in others:
        kube.kubectl("cordon", other)
    try:
        kube.submit(judged.job("job", gpus=2, seconds=300))
        kube.wait_phase("job", "Running")
    finally:
        for other in others:
            kube.kubectl("uncordon", other)
    return lost


def test_replicas_of_a_part_run_on_different_nodes_and_are_all_ready(system):
    for component in ("operator", "scheduler"):
        pods = pods_of_part(system, component)
        assert len({pod["spec"]["nodeName"] for pod in pods}) == len(pods) == 2
        assert all(status["ready"] for pod in pods for status in pod["status"]["containerStatuses"])
    budgets = json.loads(system.insist("get", "poddisruptionbudgets", "-o", "json"))["items"]
    assert {found["status"]["disruptionsAllowed"] for found in budgets} == {1}


def test_the_plan_apis_service_leads_to_the_leader_alone_and_to_its_successor(system):
    old = leader(system, "scheduler")
    assert plan_addresses(system) == [old["status"]["podIP"]]
    system.delete("pod", old["metadata"]["name"])
    new = wait_for(lambda: leader(system, "scheduler"), seconds=60, what="a successor leads")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert plan_addresses(system) == [new["status"]["podIP"]]


def test_after_a_power_cut_of_the_leaders_node_others_lead_and_the_job_runs_elsewhere(
    kube, system, cluster, running_there, refusals, tell
):
    node = running_there
    with powered_off(cluster, node):
        cut, took = time.monotonic(), {}
        for component in ("operator", "scheduler"):
            wait_for(
                lambda part=component: leads_elsewhere(system, part, node),
                seconds=LEADER_SECONDS,
                what=f"another {component} leads",
            )
            took[component] = time.monotonic() - cut
        wait_for(
            lambda: kube.phase("job") != "Running" or kube.gpujob("job")["status"]["attempt"] == 2,
            seconds=ELSEWHERE_SECONDS - took["scheduler"],
            what="the status does not say that the lost worker runs",
        )
        took["status"] = time.monotonic() - cut
        wait_for(
            lambda: kube.gpujob("job")["status"]["attempt"] == 2 and kube.phase("job") == "Running",
            seconds=ELSEWHERE_SECONDS - took["status"],
            what="attempt 2 runs",
        )
        took["elsewhere"] = time.monotonic() - cut
        status = kube.gpujob("job")["status"]
        assert status["nodes"] != node
        assert status["attempts"][0]["outcome"] == "Infrastructure"
    assert refusals() == []
    tell("seconds after the cut: " + ", ".join(f"{what} {s:.1f}" for what, s in took.items()))
