# SPDX-License-Identifier: Apache-2.0
"""Nodes whose GPUs another device plugin hands out: packed by count, without a say in devices."""

import pytest
from extender_builders import (
    OBSERVED,
    World,
    gpu_node,
    job,
    observed_node,
    places,
    plan_request,
    pod,
    share_limits,
    whole,
)

from gpupack_crds import names
from gpupack_crds.names import DEVICES_ANNOTATION
from gpupack_crds.plan import PlanRefusal
from gpupack_extender.binding import annotations, judge
from gpupack_scheduler.errors import BindRefused, RequestInvalid
from gpupack_scheduler.ledger.ledger import Outcome

OTHER = "its GPUs are requested by another resource name: "


@pytest.fixture
def world(world):
    """Two nodes of our own, `a` and `b`; two observed ones, `x` and `y`, of four GPUs."""
    world.add_observed_node("x")
    world.add_observed_node("y")
    return world


def asking(name, gpus=1, **changes):
    return pod(name, asking={OBSERVED: str(gpus)}, **changes)


def placed(world, pod_, nodes=("a", "b", "x", "y")):
    (where,) = world.filter(pod_, nodes=nodes).node_names
    return world.bind(pod_, where)


def planned(world, name="train", **spec):
    return world.plan(plan_request(name, resourceName=OBSERVED, **spec))


def test_a_pod_goes_to_the_fullest_node_that_hands_out_what_it_asks_for(world):
    placed(world, asking("p", 2), nodes=["y"])
    assert placed(world, asking("q", 2)).spec.node_name == "y"
    assert placed(world, asking("r", 1)).spec.node_name == "x"


def test_the_binding_names_no_devices(world):
    bound = placed(world, asking("p", 2))
    assert DEVICES_ANNOTATION not in bound.metadata.annotations


@pytest.mark.parametrize(
    ("ask", "node"), [({OBSERVED: "1"}, "a"), (None, "x"), (share_limits(30), "x")]
)
def test_no_job_gets_a_node_whose_gpus_have_another_resource_name(world, ask, node):
    result = world.filter(pod("p", asking=ask), nodes=[node])
    name = OBSERVED if node == "x" else names.GPU
    if node != "x":
        name += f" (request {names.GPU}: 1 in place of {OBSERVED}: 1)"
    assert result.failed_and_unresolvable_nodes == {node: OTHER + name}


def test_a_full_node_fails_in_a_way_that_evicting_could_help(world):
    placed(world, asking("p", 4), nodes=["x"])
    assert world.filter(asking("q"), nodes=["x"]).failed_nodes == {"x": "fewer than 1 free GPU"}


def test_a_pod_of_another_scheduler_counts_by_its_request(world):
    world.ledger.pods.upsert(asking("p", 3, on="x"))
    assert len(world.free("x")) == 1
    assert world.filter(asking("q", 2), nodes=["x"]).node_names == []


def test_a_pod_counts_once_whatever_its_annotation_says(world):
    forged = {"annotations": {DEVICES_ANNOTATION: "[{]"}}
    world.ledger.pods.upsert(asking("p", 1, on="x", devices=whole("x", 0)))
    world.ledger.pods.upsert(asking("q", 1, on="x", **forged))
    assert len(world.free("x")) == 2


def test_gpus_of_a_pod_are_free_when_it_is_terminal(world):
    placed(world, asking("p", 3), nodes=["x"])
    world.ledger.pods.upsert(asking("p", 3, on="x", phase="Succeeded"))
    assert len(world.free("x")) == 4


def test_a_gang_is_planned_node_by_node(world):
    plan = planned(world, workers=3, gpus=2)
    assert sorted(each.node for each in places(plan)) == ["x", "x", "y"]
    assert {each.devices for each in places(plan)} == {()}
    assert isinstance(planned(world, "other", workers=2, gpus=2), PlanRefusal)


def test_plan_status_and_pod_of_an_observed_worker_count_once(world):
    (worker,) = places(planned(world, gpus=3))
    assert len(world.free(worker.node)) == 1
    written = job(
        "train",
        attempt=1,
        phase="Admitted",
        placed=[(worker.node, [])],
        gpus=3,
        resourceName=OBSERVED,
    )
    world.ledger.jobs.upsert(written)
    assert len(world.free(worker.node)) == 1
    mine = asking("p", 3, worker=("train", 1, 0))
    assert world.filter(mine, nodes=["x", "y"]).node_names == [worker.node]
    world.bind(mine, worker.node)
    assert len(world.free(worker.node)) == 1
    world.ledger.jobs.remove(written)
    assert len(world.free(worker.node)) == 1
    world.ledger.pods.remove(mine)
    assert len(world.free(worker.node)) == 4


def test_a_written_plan_is_held_after_a_restart(world):
    held = [("x", []), ("x", [])]
    world.ledger.jobs.upsert(
        job("train", attempt=1, phase="Running", placed=held, gpus=2, resourceName=OBSERVED)
    )
    assert world.free("x") == []


def test_a_plan_is_not_used_when_the_node_has_fewer_gpus_than_claimed(world):
    (worker,) = places(planned(world, gpus=3))
    world.ledger.nodes.upsert(observed_node(worker.node, gpus=2))
    mine = asking("p", 3, worker=("train", 1, 0))
    text = f"more {OBSERVED} are claimed on node {worker.node} than it has"
    answer = world.filter(mine, nodes=[worker.node]).failed_and_unresolvable_nodes
    assert answer == {worker.node: f"the worker's place cannot be used: {text}"}
    with pytest.raises(BindRefused, match=text):
        world.reserve(mine, worker.node)


def test_a_plan_is_not_used_when_its_node_is_no_longer_observed(world):
    (worker,) = places(planned(world, gpus=1))
    world.add_node(worker.node)
    with pytest.raises(BindRefused, match=f"does not hand out {OBSERVED}"):
        world.reserve(asking("p", worker=("train", 1, 0)), worker.node)


def test_a_lost_reply_is_judged_by_the_node_alone(world):
    claim = world.reserve(asking("p"), "x")
    assert annotations(claim) == {}
    assert judge(asking("p", on="x"), claim, may_have_landed=True) is Outcome.LANDED
    assert judge(asking("p", on="y"), claim, may_have_landed=True) is Outcome.NOT_LANDED


def test_models_are_those_of_the_gpus_that_the_agent_sees(world):
    assert places(planned(world, gpus=1, gpuModels=["H100"]))[0].node == "x"
    assert planned(world, "other", gpus=1, gpuModels=["A100"]).never


def test_a_node_without_gpu_telemetry_is_still_packed(world):
    world.ledger.nodes.upsert(observed_node("z", gpus=2))
    world.ledger.gpus.upsert(gpu_node("z", gpus=0, mode="observed", resource=OBSERVED))
    assert placed(world, asking("p", 2), nodes=["z"]).spec.node_name == "z"


def test_a_node_whose_plugin_is_away_gets_no_work(world):
    world.ledger.nodes.upsert(observed_node("x", gpus=0))
    result = world.filter(asking("p"), nodes=["x"])
    assert result.failed_and_unresolvable_nodes == {"x": "node is not ready"}


def test_a_node_of_a_resource_that_is_not_configured_gets_no_work(caplog):
    world = World()
    world.ledger.nodes.upsert(observed_node("x"))
    world.ledger.gpus.upsert(gpu_node("x", mode="observed", resource="example.org/gpu"))
    assert "x" not in world.ledger.cluster
    assert "its GPUs are example.org/gpu, which is none of the observed resources" in caplog.text


def test_a_job_for_an_unobserved_resource_gets_the_list_of_observed_ones(world):
    with pytest.raises(RequestInvalid, match=r"use one of: gpupack\.dev/gpu, nvidia\.com/gpu"):
        world.plan(plan_request("train", resourceName="example.org/gpu"))


def test_a_template_that_asks_for_the_gpus_of_another_resource_is_not_planned(world):
    by_hand = {"name": "helper", "resources": {"limits": {OBSERVED: "1"}}}
    instead = (
        r"helper asks for nvidia\.com/gpu: 1, .* write resourceName: nvidia\.com/gpu and gpus: 1"
    )
    with pytest.raises(RequestInvalid, match=instead):
        world.plan(plan_request("train", pod_spec={"containers": [by_hand]}))


@pytest.mark.parametrize("model", ["nvidia.com/gpu: 2", "A100:8"])
def test_a_model_that_is_none_is_not_planned(world, model):
    with pytest.raises(RequestInvalid, match=f"{model!r} is a"):
        world.plan(plan_request("train", gpuModels=[model]))


def test_a_refusal_names_the_models_that_the_cluster_has(world):
    answer = planned(world, gpus=1, gpuModels=["H100-40GB"])
    assert "model is not H100-40GB (nearest: NVIDIA H100" in answer.message


def test_holders_that_the_agent_reports_are_no_claims(world):
    reported = {"p": whole("x", 0, 1)}
    world.ledger.gpus.upsert(gpu_node("x", mode="observed", resource=OBSERVED, lingering=reported))
    assert len(world.free("x")) == 4
