# SPDX-License-Identifier: Apache-2.0
"""CPU and memory as kube-scheduler counts them."""

import msgspec
import pytest
from extender_builders import called, plan_request, pod

from gpupack_kubeclient import objects
from gpupack_scheduler.requests import pod_resources


def spec(*requests, whole=None, init=(), overhead=None):
    """Containers by their requests; `whole`: requests and limits of the pod."""
    requested, limits = whole or ({}, {})
    built = {
        "containers": [{"resources": {"requests": each}} for each in requests],
        "initContainers": [{"resources": {"requests": each}} for each in init],
        "resources": {"requests": requested, "limits": limits},
        "overhead": overhead or {},
    }
    return msgspec.convert(built, objects.PodSpec)


ONE, TWO = {"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"}


@pytest.mark.parametrize(
    ("asking", "needs"),
    [
        (spec(ONE, TWO), (3000, 3072)),
        (spec(ONE, init=[TWO]), (2000, 2048)),
        (spec(ONE, whole=({"cpu": "16", "memory": "64Gi"}, {})), (16_000, 65_536)),
        (spec(ONE, whole=({"cpu": "16"}, {})), (16_000, 1024)),
        (spec(TWO, whole=({"memory": "1Gi"}, {}), init=[TWO]), (2000, 1024)),
        (spec(ONE, whole=({"cpu": "16"}, {}), overhead={"cpu": "250m"}), (16_250, 1024)),
        (spec({}, whole=({}, {"cpu": "4"})), (4000, 0)),
        (spec({}, whole=({"cpu": "1"}, {"cpu": "4"})), (1000, 0)),
        (spec(ONE, whole=({}, {"cpu": "4", "memory": "8Gi"})), (1000, 1024)),
        (spec({"cpu": "1"}, whole=({}, {"cpu": "4", "memory": "8Gi"})), (1000, 8192)),
        (spec(ONE, whole=({"hugepages-2Mi": "4Mi"}, {})), (1000, 1024)),
    ],
)
def test_cpu_and_memory_are_those_of_the_pod_as_a_whole_where_it_says_so(asking, needs):
    counted = pod_resources.needs(asking)
    assert (counted.cpu, counted.memory) == needs


DISK = {"ephemeral-storage": "1Gi"}
"""Of which a fraction of a byte is one more."""


@pytest.mark.parametrize(
    ("asking", "extended"),
    [
        (spec({"rdma/hca": "1"}, {"rdma/hca": "2"}), {"rdma/hca": 3}),
        (spec({"rdma/hca": "1"}, init=[{"rdma/hca": "2"}]), {"rdma/hca": 2}),
        (spec(DISK, {"ephemeral-storage": "100m"}), {"ephemeral-storage": (1 << 30) + 1}),
        (spec(DISK, overhead=DISK), {"ephemeral-storage": 2 << 30}),
        (spec({"hugepages-2Mi": "4Mi"}, {"hugepages-1Gi": "0"}), {"hugepages-2Mi": 4 << 20}),
        (spec({}, whole=({"hugepages-2Mi": "4Mi"}, {})), {"hugepages-2Mi": 4 << 20}),
        (spec({}, whole=({}, {"hugepages-2Mi": "4Mi"})), {"hugepages-2Mi": 4 << 20}),
        (spec({"gpupack.dev/gpu": "1", "nvidia.com/gpu": "1", "pods": "1"}), {}),
        (spec({"nvidia.com/mig-1g.10gb": "1"}), {"nvidia.com/mig-1g.10gb": 1}),
    ],
)
def test_other_resources_are_counted_by_name(asking, extended):
    assert dict(pod_resources.needs(asking, ("nvidia.com/gpu",)).extended) == extended


def test_a_pod_that_asks_as_a_whole_for_more_than_is_free_gets_no_node(world):
    asking = called(pod("p"), resources={"requests": {"cpu": "64"}})
    refused = world.filter_call(asking).failed_nodes
    assert refused["a"].startswith("fewer than 64000 milli-CPU free")


def test_a_bound_pod_that_asked_as_a_whole_takes_as_much(world):
    bound = pod("p", gpus=0, on="a")
    whole = msgspec.convert({"requests": {"cpu": "30"}}, objects.Resources)
    world.ledger.pods.upsert(
        msgspec.structs.replace(bound, spec=msgspec.structs.replace(bound.spec, resources=whole))
    )
    assert "milli-CPU" in world.filter(pod("q", cpu="4"), nodes=["a"]).failed_nodes["a"]


def test_a_gang_whose_pods_ask_as_a_whole_is_planned_by_that(world):
    pod_spec = {"containers": [{"name": "worker"}], "resources": {"limits": {"cpu": "64"}}}
    refusal = world.plan(plan_request("train", pod_spec=pod_spec))
    assert refusal.counts == {"InsufficientCpu": 2}
