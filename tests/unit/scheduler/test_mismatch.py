# SPDX-License-Identifier: Apache-2.0
"""A worker's place is for a pod that asks for what the place holds: that is what a quota counts."""

import pytest
from extender_builders import OBSERVED, gpu_node, job, part, pod, share_limits, whole

from gpupack_crds import names
from gpupack_scheduler.errors import BindRefused, RequestMismatch

WORKER = {"worker": ("train", 1, 0)}
GPUS = {number: {names.GPU: str(number)} for number in (1, 2, 4)}
LARGE_SHARE = part("a", 0, percent=99, memory_mib=71680)

OTHERS = {
    "a smaller share": (
        LARGE_SHARE,
        share_limits(1, "1Mi"),
        "a share of 1% and 1 MiB, but its worker's place is a share of 99% and 70 GiB;",
    ),
    "another percent alone": (LARGE_SHARE, share_limits(98, "70Gi"), "98% and 70 GiB"),
    "other memory alone": (LARGE_SHARE, share_limits(99, "1Gi"), "99% and 1 GiB"),
    "more GPUs": (whole("a", 0), GPUS[4], "4 gpupack.dev/gpu, but its worker's place is 1 gpup"),
    "fewer GPUs": (whole("a", 0, 1), GPUS[1], "1 gpupack.dev/gpu, but its worker's place is 2 g"),
    "a share of a whole GPU": (whole("a", 0), share_limits(40), "but its worker's place is 1 gpu"),
    "a whole GPU of a share": (part("a", 0, percent=40), GPUS[1], "is a share of 40% and 8 GiB"),
    "GPUs of another device plugin": (whole("a", 0), {OBSERVED: "1"}, "asks for 1 nvidia.com/gpu"),
}


def admitted(world, held, **spec):
    world.ledger.jobs.upsert(
        job("train", attempt=1, phase="Admitted", placed=[("a", held)], **spec)
    )


@pytest.mark.parametrize(("held", "asking", "text"), OTHERS.values(), ids=OTHERS)
def test_a_pod_that_requests_other_gpus_than_its_worker_gets_no_node(world, held, asking, text):
    admitted(world, held)
    result = world.filter(pod("p", asking=asking, **WORKER), nodes=["a"])
    assert result.node_names == []
    assert text in result.failed_and_unresolvable_nodes["a"]


@pytest.mark.parametrize(("held", "asking", "text"), OTHERS.values(), ids=OTHERS)
def test_a_pod_that_requests_other_gpus_than_its_worker_is_not_bound(world, held, asking, text):
    admitted(world, held)
    with pytest.raises(RequestMismatch) as refused:
        world.reserve(pod("p", asking=asking, **WORKER), "a")
    assert text in str(refused.value)
    assert world.states() == ["written"]


def gpu_failed(world):
    world.ledger.gpus.upsert(gpu_node("a", failed=[0]))


def other_pod_bound(world):
    world.bind(pod("first", **WORKER), "a")


REFUSED = {
    "the GPU failed": (gpu_failed, 1, "the worker's place cannot be used: GPU GPU-a-0 on node a"),
    "another pod has the place": (other_pod_bound, 1, "the worker's place is held by pod first"),
    "another pod has the place of other GPUs": (other_pod_bound, 2, "asks for 2 gpupack.dev/gpu"),
}


@pytest.mark.parametrize(("change", "gpus", "text"), REFUSED.values(), ids=REFUSED)
def test_filter_and_bind_refuse_a_worker_s_pod_for_the_same_reason(world, change, gpus, text):
    admitted(world, whole("a", 0))
    change(world)
    asking = pod("p", gpus=gpus, **WORKER)
    answer = world.filter(asking, nodes=["a"]).failed_and_unresolvable_nodes["a"]
    assert text in answer
    with pytest.raises(BindRefused) as refused:
        world.reserve(asking, "a")
    assert str(refused.value) == answer


def test_the_gpus_of_a_worker_stay_held_for_the_pod_that_requests_them(world):
    admitted(world, LARGE_SHARE)
    world.filter(pod("p", asking=share_limits(1, "1Mi"), **WORKER), nodes=["a"])
    true_worker = pod("q", asking=share_limits(99, "70Gi"), **WORKER)
    assert world.filter(true_worker, nodes=["a"]).node_names == ["a"]
    world.bind(true_worker, "a")
    assert world.left("a") == [1, 100, 100, 100]


def test_cpu_and_memory_may_differ_from_the_plan(world):
    admitted(world, whole("a", 0))
    assert world.filter(pod("p", cpu="3", **WORKER), nodes=["a"]).node_names == ["a"]


def test_gpus_of_another_device_plugin_are_compared_by_their_number(world):
    world.add_observed_node("x")
    placed = [("x", [])]
    world.ledger.jobs.upsert(
        job("train", attempt=1, phase="Admitted", placed=placed, gpus=2, resourceName=OBSERVED)
    )
    with pytest.raises(RequestMismatch, match=r"asks for 1 nvidia.com/gpu, .* place is 2 nvidia"):
        world.reserve(pod("p", asking={OBSERVED: "1"}, **WORKER), "x")
    world.bind(pod("q", asking={OBSERVED: "2"}, **WORKER), "x")


def test_a_worker_whose_ask_cannot_be_read_is_not_bound(world):
    admitted(world, whole("a", 0))
    with pytest.raises(BindRefused, match="pod p: 0 of its containers and sidecars ask"):
        world.reserve(pod("p", gpus=0, **WORKER), "a")
