# SPDX-License-Identifier: Apache-2.0
"""A node where other device plugins hand out the GPUs: packed, and otherwise left alone."""

import json

import pytest
from harness import DEVICES_ANNOTATION, placed, pod_condition, wait_for
from observed_node import GPUS, OURS, THEIRS, job, last_node, pod
from parts import rolled_out

SECOND = "example.org/gpu"
"""The resource of another plugin, whose GPUs our agent cannot inspect."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stand(cluster, system):
    """The last node, observed; afterwards it is ours again."""
    with last_node(cluster, system) as stand:
        yield stand


@pytest.fixture(autouse=True)
def served_and_not_held(idle, stand):
    """Wait until the stand-in serves and no pod holds its GPUs or ours."""
    stand.start()
    wait_for(lambda: stand.holders() == {}, seconds=60, what="no pod holds the observed GPUs")


def nodes_of(kube):
    return {each["metadata"]["name"]: each["spec"].get("nodeName") for each in kube.pods()}


def waits(kube, name):
    """Return whether the pod is there and has no node, be it behind the queue's gate or not."""
    condition = pod_condition(kube.pod(name), "PodScheduled")
    return condition.get("status") == "False"


def test_next_to_another_plugin_the_agent_registers_nothing_and_is_ready(stand):
    stand.wait_allocatable(OURS, 0)
    stand.wait_allocatable("gpupack.dev/gpu-share", 0)
    assert (stand.mode(), stand.gpunode()["resources"]) == ("observed", [THEIRS])
    assert {each["resource"] for each in stand.gpunode()["devices"]} == {THEIRS}
    rolled_out(stand.system, "daemonset/gpupack-agent")


def test_gangs_and_pods_are_packed_around_pods_of_another_scheduler(kube, stand):
    kube.submit(pod("theirs", 3))
    kube.wait_pod("theirs", "Running")
    kube.submit(job("gang", workers=2, gpus=2, resourceName=THEIRS))
    gang = kube.wait_phase("gang", "Running", seconds=120)
    assert [(place.node, place.devices) for place in placed(gang)] == [(stand.node, ())] * 2
    kube.submit(pod("plain", 1, schedulerName="gpupack"))
    kube.wait_pod("plain", "Running")
    assert set(nodes_of(kube).values()) == {stand.node}
    assert all(DEVICES_ANNOTATION not in json.dumps(each["metadata"]) for each in kube.pods())
    kube.submit(pod("later", 3, schedulerName="gpupack"))
    wait_for(lambda: waits(kube, "later"), seconds=60, what="the pod without room waits")
    kube.delete("pod", "theirs")
    kube.wait_pod("later", "Running")


def test_the_gpus_of_each_pod_are_read_from_the_kubelet(kube, stand):
    kube.submit(pod("three", 3), pod("four", 4, schedulerName="gpupack"))
    for name in ("three", "four"):
        kube.wait_pod(name, "Running")
    wait_for(lambda: len(stand.holders()) == 2, seconds=60, what="two holders")
    held = stand.holders()
    assert {name: len(uuids) for name, uuids in held.items()} == {"three": 3, "four": 4}
    known = {device["uuid"] for device in stand.gpunode()["devices"]}
    assert len({*held["three"], *held["four"]} & known) == 7
    kube.delete("pod", "three")
    wait_for(lambda: set(stand.holders()) == {"four"}, seconds=60, what="one holder")


def test_jobs_for_our_own_gpus_go_to_other_nodes(kube, stand):
    others = len(kube.nodes()) - 1
    kube.submit(job("fits", workers=others, gpus=GPUS))
    fits = kube.wait_phase("fits", "Running", seconds=120)
    assert stand.node not in {place.node for place in placed(fits)}
    kube.submit(job("waits", gpus=1))
    message = kube.wait_phase("waits", "Pending")["status"]["message"]
    assert "another resource name" in message


def test_neither_a_restart_of_the_other_plugin_nor_one_of_the_agent_takes_its_node(kube, stand):
    kube.submit(pod("runs-on", 5))
    kube.wait_pod("runs-on", "Running")
    stand.stop()
    stand.restart_agent()
    assert stand.mode() == "observed"
    assert stand.allocatable(OURS) == 0
    stand.start()
    kube.submit(job("after", gpus=3, resourceName=THEIRS))
    kube.wait_phase("after", "Running", seconds=120)
    wait_for(lambda: len(stand.holders()) == 2, seconds=60, what="two holders")
    held = stand.holders()
    assert len({uuid for uuids in held.values() for uuid in uuids}) == GPUS


def test_two_plugins_on_one_node_are_packed_each_for_itself(kube, stand):
    try:
        stand.serve("second", SECOND, ["other-0", "other-1"])
        both = [THEIRS, SECOND]
        wait_for(lambda: stand.gpunode()["resources"] == both, seconds=60, what="both are observed")
        assert {each["resource"] for each in stand.gpunode()["devices"]} == {THEIRS}
        kube.submit(pod("theirs", 1, resource=SECOND))
        kube.wait_pod("theirs", "Running")
        kube.submit(job("first", gpus=GPUS, resourceName=THEIRS))
        kube.submit(job("second", gpus=1, resourceName=SECOND))
        for name in ("first", "second"):
            placed_ = placed(kube.wait_phase(name, "Running", seconds=120))
            assert [(place.node, place.devices) for place in placed_] == [(stand.node, ())]
        wait_for(lambda: len(stand.holders()) == 3, seconds=60, what="three holders")
        kube.submit(pod("later", 1, resource=SECOND, schedulerName="gpupack"))
        wait_for(lambda: waits(kube, "later"), seconds=60, what="the pod without room waits")
        kube.delete("pod", "theirs")
        kube.wait_pod("later", "Running")
    finally:
        stand.stop("second", SECOND)


def test_without_the_other_plugin_a_deleted_gpunode_is_created_in_mode_owned(kube, stand):
    stand.give_back()
    assert stand.mode() == "owned"
    kube.submit(job("ours", workers=len(kube.nodes()), gpus=GPUS))
    kube.wait_phase("ours", "Running", seconds=120)
