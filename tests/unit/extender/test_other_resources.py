# SPDX-License-Identifier: Apache-2.0
"""Whatever a pod requests besides CPU, memory and GPUs is planned for, by its name."""

import msgspec
import pytest
from extender_builders import World, called, gated, job, places, pod

from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.inventory import MAX_NAMES_PER_NODE
from gpupack_scheduler.ledger.placed_job import PlacedJob
from gpupack_scheduler.requests.needs import MAX_NAMES

NIC = "rdma/hca"
GPU = "gpupack.dev/gpu"


def asking(**limits):
    return {"containers": [{"name": "worker", "resources": {"limits": limits}}]}


@pytest.fixture
def fabric():
    """Node a, where what fits on both would go, has no network devices; node b has two."""
    world = World()
    world.add_node("a")
    world.add_node("b", **{NIC: "2", "hugepages-2Mi": "1Gi", "ephemeral-storage": "100Gi"})
    return world


def nodes_of(plan):
    return [each.node for each in places(plan)]


@pytest.mark.parametrize(
    "limits", [{NIC: "1"}, {"hugepages-2Mi": "512Mi"}, {"ephemeral-storage": "50Gi"}]
)
def test_a_gang_goes_where_all_of_its_resources_are_in_each_attempt(fabric, limits):
    for attempt in range(1, 6):
        plan = fabric.asks("j", attempt=attempt, workers=2, pod_spec=asking(**limits))
        assert nodes_of(plan) == ["b", "b"]
        fabric.ledger.drop_plans("uid-j")


def test_a_resource_that_no_node_has_is_named_and_nothing_is_held(fabric):
    refusal = fabric.asks("j", workers=2, pod_spec=asking(**{NIC: "3"}))
    assert (refusal.counts, refusal.never) == ({"NoSuchResource": 2}, True)
    assert f"does not have the requested {NIC}: 3 (most on one node: 2)" in refusal.message
    assert fabric.states() == []


def test_a_resource_held_by_a_pod_without_gpus_is_missing_until_the_pod_is_deleted(fabric):
    holder = pod("nics", gpus=0, asking={NIC: "2"}, on="b")
    fabric.ledger.pods.upsert(holder)
    refusal = fabric.asks("j", pod_spec=asking(**{NIC: "1"}))
    assert (refusal.counts["InsufficientResource"], refusal.never) == (1, False)
    assert f"too little is free of the requested {NIC}: 1" in refusal.message
    fabric.ledger.pods.remove(holder)
    fabric.decide()
    assert fabric.called() == ["j"]


def test_a_plan_holds_what_its_workers_asked_for(fabric):
    assert nodes_of(fabric.asks("j", workers=2, pod_spec=asking(**{NIC: "1"}))) == ["b", "b"]
    assert "InsufficientResource" in fabric.asks("k", pod_spec=asking(**{NIC: "1"})).counts


def test_after_a_restart_resources_are_held_as_in_the_template(fabric):
    shown = msgspec.to_builtins(job("j", attempt=1, phase="Admitted", placed=[("b", ())]))
    shown["spec"] = {"gpus": 1, "template": {"spec": asking(**{NIC: "2", GPU: "1"})}}
    fabric.ledger.jobs.upsert(msgspec.json.decode(msgspec.json.encode(shown), type=PlacedJob))
    assert "InsufficientResource" in fabric.asks("k", pod_spec=asking(**{NIC: "1"})).counts


def test_filter_names_the_missing_resource_and_evicting_helps_only_where_it_exists(fabric):
    fabric.ledger.pods.upsert(pod("nics", gpus=0, asking={NIC: "2"}, on="b"))
    result = fabric.filter(pod("p", asking={GPU: "1", NIC: "1"}))
    assert result.node_names == []
    assert f"too little is free of the requested {NIC}: 1" in result.failed_nodes["b"]
    assert f"does not have the requested {NIC}: 1" in result.failed_and_unresolvable_nodes["a"]


def test_a_gated_pod_is_pinned_to_the_node_that_has_the_resource(fabric):
    limits = {GPU: "1", NIC: "1"}
    fabric.ledger.pods.upsert(gated("p", spec=asking(**limits)))
    fabric.decide()
    ((opened, place),) = fabric.gates.opened
    assert (opened.metadata.name, place.node) == ("p", "b")
    assert dict(place.placement.extended) == {NIC: 1}


def test_gpus_are_counted_once_by_whatever_name(fabric):
    fabric.add_observed_node("c", gpus=2)
    spec = asking(**{"nvidia.com/gpu": "1"})
    plan = fabric.asks("j", resourceName="nvidia.com/gpu", pod_spec=spec)
    assert nodes_of(plan) == ["c"]
    assert fabric.ledger.cluster.node("c").extended == ()


def test_a_pod_that_names_resources_without_end_is_refused(fabric):
    many = {f"example.com/{number}": "1" for number in range(MAX_NAMES + 1)}
    with pytest.raises(RequestInvalid, match=f"requests {MAX_NAMES + 1} resources besides CPU"):
        fabric.asks("j", pod_spec=asking(**many))
    asked = called(pod("p", asking={GPU: "1"} | many))
    refused = fabric.filter_call(asked)
    assert "resources besides CPU" in refused.failed_and_unresolvable_nodes["a"]


def test_the_number_of_resources_of_a_bound_pod_is_limited(fabric):
    many = {f"example.com/{number}": "1" for number in range(5 * MAX_NAMES)}
    fabric.ledger.pods.upsert(pod("p", gpus=0, asking=many, on="b"))
    (claim,) = fabric.ledger.claims.pods.values()
    assert len(claim.placement.extended) == MAX_NAMES


def test_of_a_node_that_names_resources_without_end_few_are_counted():
    world = World()
    world.add_node("a", **{f"example.com/{number}": "1" for number in range(1000)})
    assert len(world.ledger.cluster.node("a").extended) == MAX_NAMES_PER_NODE


def test_more_than_any_node_can_have_fits_no_node(fabric):
    fabric.add_node("c", **{NIC: str(2**62)})
    refusal = fabric.asks("j", pod_spec=asking(**{NIC: str(2**62)}))
    assert (refusal.counts, refusal.never) == ({"NoSuchResource": 3}, True)
