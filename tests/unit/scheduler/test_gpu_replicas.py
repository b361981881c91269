# SPDX-License-Identifier: Apache-2.0
"""GPUs that NVIDIA's plugin hands out several times: what they are to jobs, quotas and costs."""

import pytest
from extender_builders import MEMORY_MIB, OBSERVED, World, gpu_node, observed_node, pod

from gpupack_apiserver.accounts.inventory import Inventory
from gpupack_crds.plan import PlanRefusal
from gpupack_placement import WHOLE_GPU, Grant, Placement
from gpupack_queue.charge import ANY, ModelKeys
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.gpu_replicas import replicas_of_a_gpu

SHARED = f"{OBSERVED}.shared"
SLICED = {
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "nvidia.com/gpu.count": "2",
}
MPS = SLICED | {"nvidia.com/gpu.sharing-strategy": "mps"}
NONE = {"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}


def world_of(resource, labels, *, units=8):
    """Two boards, which their plugin hands out as so many units of a resource."""
    world = World(observed=(OBSERVED, SHARED))
    offered = {OBSERVED: 0, resource: units}
    world.ledger.nodes.upsert(observed_node("a", gpus=offered.pop(OBSERVED), labels=labels))
    if offered:
        node = world.ledger.nodes.items["a"]
        node.status.allocatable.update(offered)
        world.ledger.nodes.upsert(node)
    world.ledger.gpus.upsert(gpu_node("a", gpus=2, mode="observed", resource=resource))
    return world


@pytest.fixture
def renamed():
    """Its plugin runs with renameByDefault."""
    return world_of(SHARED, SLICED)


def devices(world):
    return world.ledger.cluster.node("a").devices


@pytest.mark.parametrize("labels", [SLICED, MPS, {}], ids=["time-slicing", "mps", "no labels"])
def test_replicas_are_no_whole_gpus(labels):
    world = world_of(OBSERVED, labels)
    for gpus, more in ((8, {"minMemory": "79Gi"}), (1, {})):
        answer = world.asks("j", gpus=gpus, resourceName=OBSERVED, **more)
        assert isinstance(answer, PlanRefusal)
        assert (answer.reason, *answer.counts) == ("Unsatisfiable", "OnlyReplicas")
        assert "its GPUs are shared by time-slicing or MPS" in answer.message
    refused = world.filter(pod("p", asking={OBSERVED: "1"}), nodes=("a",))
    assert "none is allocated whole" in refused.failed_and_unresolvable_nodes["a"]


@pytest.mark.parametrize("labels", [NONE, {}], ids=["none", "no labels"])
def test_gpus_that_are_not_shared_are_whole(labels):
    world = world_of(OBSERVED, labels, units=2)
    assert not isinstance(world.asks("j", gpus=2, resourceName=OBSERVED), PlanRefusal)


def test_a_replica_has_its_part_of_the_memory_and_there_are_as_many_gpus_as_boards(renamed):
    assert {device.memory for device in devices(renamed)} == {MEMORY_MIB // 4}
    assert len({device.parent for device in devices(renamed)}) == 2
    assert ModelKeys().capacity(renamed.ledger.cluster) == {ANY: 2 * WHOLE_GPU}


def test_a_request_by_the_resource_name_of_replicas_gets_a_replica(renamed):
    for number in range(8):
        answer = renamed.asks(f"j{number}", gpus=1, resourceName=SHARED)
        assert not isinstance(answer, PlanRefusal)
    full = renamed.asks("late", gpus=1, resourceName=SHARED)
    assert (full.reason, "fewer than 1 free replica of a shared GPU" in full.message) == (
        "TooFewFreeReplicas",
        True,
    )


def test_a_pod_that_another_scheduler_bound_takes_a_replica(renamed):
    renamed.ledger.pods.upsert(pod("p", asking={SHARED: "5"}, on="a", phase="Running"))
    for number in range(3):
        answer = renamed.asks(f"j{number}", gpus=1, resourceName=SHARED)
        assert not isinstance(answer, PlanRefusal)
    assert isinstance(renamed.asks("late", gpus=1, resourceName=SHARED), PlanRefusal)


def test_more_than_one_replica_is_refused_with_what_to_write(renamed):
    with pytest.raises(RequestInvalid, match="ask for 1: it is a replica of a shared GPU"):
        renamed.asks("j", gpus=2, resourceName=SHARED)
    said = renamed.filter(pod("p", asking={SHARED: "2"}), nodes=("a",))
    assert "ask for 1" in said.failed_and_unresolvable_nodes["a"]


def test_a_pod_by_our_scheduler_gets_the_replica_that_it_asks_for(renamed):
    asking = pod("p", asking={SHARED: "1"})
    assert renamed.filter(asking, nodes=("a",)).node_names == ["a"]
    bound = renamed.bind(asking, "a")
    assert bound.spec.node_name == "a"


def test_quotas_and_costs_count_a_part_of_a_gpu(renamed):
    cluster = renamed.ledger.cluster
    first = devices(renamed)[0]
    grant = Grant(first.uuid, WHOLE_GPU, first.memory)
    charge = ModelKeys().charge(cluster, [Placement("a", (grant,))])
    assert charge == {ANY: WHOLE_GPU // 4}
    (held,) = Inventory(cluster).unnamed("a", {SHARED: 1})
    assert held.milli == WHOLE_GPU // 4


@pytest.mark.parametrize(
    ("labels", "resource", "found"),
    [
        (SLICED, OBSERVED, 4),
        (SLICED, SHARED, 4),
        (MPS, OBSERVED, 4),
        (NONE, OBSERVED, None),
        ({}, SHARED, 4),
        (SLICED | {"nvidia.com/gpu.replicas": "many"}, OBSERVED, 4),
        (SLICED | {"nvidia.com/gpu.replicas": "9" * 99}, OBSERVED, 4),
        (SLICED | {"nvidia.com/gpu.replicas": "0"}, OBSERVED, 4),
        (SLICED | {"nvidia.com/gpu.replicas": "1"}, OBSERVED, None),
        ({}, OBSERVED, 4),
        (SLICED | {"nvidia.com/gpu.sharing-strategy": "none"}, OBSERVED, None),
    ],
)
def test_replicas_are_read_from_node_labels(labels, resource, found):
    assert replicas_of_a_gpu(labels, resource, number=8, gpus=2) == found


@pytest.mark.parametrize(("number", "gpus"), [(2, 2), (7, 2), (8, 0), (0, 2)])
def test_without_labels_a_count_that_is_no_multiple_means_whole_gpus(number, gpus):
    assert replicas_of_a_gpu({}, OBSERVED, number=number, gpus=gpus) is None
