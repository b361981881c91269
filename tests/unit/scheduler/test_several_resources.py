# SPDX-License-Identifier: Apache-2.0
"""A node where two other device plugins hand out GPUs of their own: two kinds, each counted."""

import pytest
from extender_builders import OBSERVED, OTHER, World, observed_node, places, plan_request, pod

from gpupack_crds.plan import PlanRefusal
from gpupack_scheduler.errors import BindRefused


@pytest.fixture
def world():
    """Node `x` with two GPUs of NVIDIA's and three of AMD's."""
    world = World(observed=(OBSERVED, OTHER))
    world.add_node_of_two("x")
    return world


def asking(name, resource, gpus=1, **changes):
    return pod(name, asking={resource: str(gpus)}, **changes)


def placed(world, pod_):
    (where,) = world.filter(pod_, nodes=["x"]).node_names
    return world.bind(pod_, where)


def free(world):
    """Count the free GPUs of each kind."""
    node = world.ledger.cluster.node("x")
    resources = [device.resource for device in node.devices]
    there = [resources[number] for number in world.free("x")]
    return there.count(OBSERVED), there.count(OTHER)


def test_device_tokens_of_each_resource_are_counted_separately(world):
    placed(world, asking("p", OBSERVED, 2))
    assert free(world) == (0, 3)
    placed(world, asking("q", OTHER, 3))
    assert free(world) == (0, 0)


def test_a_pod_does_not_get_gpus_of_the_other_kind(world):
    placed(world, asking("p", OBSERVED, 2))
    result = world.filter(asking("q", OBSERVED), nodes=["x"])
    assert result.failed_nodes == {"x": "fewer than 1 free GPU"}
    assert world.filter(asking("r", OTHER), nodes=["x"]).node_names == ["x"]


def test_a_pod_of_another_scheduler_may_hold_gpus_of_both_kinds(world):
    both = {OBSERVED: "1", OTHER: "2"}
    world.ledger.pods.upsert(pod("p", asking=both, on="x"))
    assert free(world) == (1, 1)
    world.ledger.pods.upsert(pod("p", asking=both, on="x", phase="Succeeded"))
    assert free(world) == (2, 3)


def test_a_gang_is_planned_on_gpus_of_its_resource_alone(world):
    plan = world.plan(plan_request("fits", workers=3, gpus=1, resourceName=OTHER))
    assert [(each.node, each.devices) for each in places(plan)] == [("x", ())] * 3
    assert free(world) == (2, 0)
    refused = world.plan(plan_request("waits", workers=3, gpus=1, resourceName=OBSERVED))
    assert isinstance(refused, PlanRefusal)
    assert "2 of 3 workers could ever fit" in refused.message


def test_models_are_those_of_the_gpus_of_that_resource(world):
    assert places(world.plan(plan_request("a", gpuModels=["MI300X"], resourceName=OTHER)))
    assert world.plan(plan_request("b", gpuModels=["H100"], resourceName=OTHER)).never


def test_a_request_by_the_wrong_resource_name_is_refused_with_the_valid_names(world):
    text = f"its GPUs are requested by another resource name: {OTHER} or {OBSERVED}"
    result = world.filter(pod("p"), nodes=["x"])
    assert result.failed_and_unresolvable_nodes == {"x": text}


def test_gpus_of_one_plugin_are_assigned_while_the_other_is_away(world):
    (worker,) = places(world.plan(plan_request("train", resourceName=OTHER)))
    world.ledger.nodes.upsert(observed_node("x", gpus=2, **{OTHER: 0}))
    assert world.filter(asking("p", OBSERVED), nodes=["x"]).node_names == ["x"]
    assert world.filter(asking("q", OTHER), nodes=["x"]).node_names == []
    with pytest.raises(BindRefused, match=f"does not hand out {OTHER}"):
        world.reserve(asking("w", OTHER, worker=("train", 1, 0)), worker.node)


def test_a_resource_that_is_not_observed_stays_out_and_the_other_is_served(world):
    world = World(observed=(OTHER,))
    world.add_node_of_two("x")
    assert {device.resource for device in world.ledger.cluster.node("x").devices} == {OTHER}
    assert world.filter(asking("p", OTHER, 3), nodes=["x"]).node_names == ["x"]


def test_a_restart_counts_both_kinds_as_before(world):
    pods = [placed(world, asking("p", OBSERVED, 1)), placed(world, asking("q", OTHER, 2))]
    fresh = world.new_ledger()
    fresh.pods.replace(pods)
    fresh.nodes.replace(list(world.ledger.nodes.items.values()))
    fresh.gpus.replace(list(world.ledger.gpus.items.values()))
    world.use(fresh)
    assert free(world) == (1, 1)


def test_gpus_withheld_for_device_tokens_have_the_same_resource(world):
    world.ledger.pods.upsert(pod("p", asking={OTHER: "2"}, on="x"))
    world.ledger.pods.upsert(pod("q", asking={OBSERVED: "1", OTHER: "1"}, on="x"))
    world.decide()
    held = {
        running.job.name: sorted(g.uuid for place in running.placements for g in place.devices)
        for running in world.owner.queue.state.running
    }
    assert held == {
        "pod p": [f"x/{OTHER}/0", f"x/{OTHER}/1"],
        "pod q": [f"x/{OTHER}/2", f"x/{OBSERVED}/0"],
    }
