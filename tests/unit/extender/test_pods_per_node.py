# SPDX-License-Identifier: Apache-2.0
"""A tenant fills a node's pods with some that ask for nothing."""

import pytest
from extender_builders import World, gpu_node, node, places, plan_request, pod, whole

FULL = "the node runs its maximum number of pods"


@pytest.fixture
def crowded():
    """Node a may run three pods and does, of which none asks for GPUs; node b is free."""
    world = World()
    world.add_node("a", pods=3)
    world.add_node("b")
    for number in range(3):
        world.ledger.pods.upsert(pod(f"idle-{number}", gpus=0, cpu="0", on="a"))
    return world


def test_a_gang_is_not_planned_where_no_pod_may_run(crowded):
    assert {each.node for each in places(crowded.plan(plan_request("t", workers=4)))} == {"b"}
    refusal = crowded.plan(plan_request("u", workers=1))
    assert refusal.counts == {"TooFewFreeGpus": 1, "TooManyPods": 1}
    assert f"{FULL} (most on one node: 3)" in refusal.message


def test_filter_says_that_a_node_is_at_its_pod_limit_and_that_evicting_helps(crowded):
    result = crowded.filter(pod("p"))
    assert result.node_names == ["b"]
    assert crowded.filter(pod("q"), nodes=["a"]).failed_nodes == {"a": FULL}


def test_a_planned_worker_and_its_pod_are_one_pod(world):
    world.ledger.nodes.upsert(node("a", pods=2))
    world.ledger.nodes.upsert(node("b", ready=False))
    (placed,) = places(world.plan(plan_request("train")))
    world.ledger.pods.upsert(pod("w", on="a", devices=placed.devices, worker=("train", 1, 0)))
    assert world.filter(pod("p")).node_names == ["a"]
    assert world.filter(pod("q"), nodes=["a"]).failed_nodes == {"a": FULL}


def test_pods_that_linger_and_gpus_set_aside_are_no_pods(world):
    world.ledger.nodes.upsert(node("a", pods=2))
    world.ledger.gpus.upsert(gpu_node("a", lingering={"gone": whole("a", 0)}))
    world.ledger.pods.upsert(pod("foreign", on="a"))
    assert world.free("a") == [1, 2]
    assert world.filter(pod("p"), nodes=["a"]).node_names == ["a"]
