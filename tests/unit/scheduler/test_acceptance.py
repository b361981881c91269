# SPDX-License-Identifier: Apache-2.0
"""GPUs that are tried before they are used: burn-ins get them, and nobody else does."""

import msgspec
import pytest
from extender_builders import World, gpu_node, places, plan_request, pod, uuid

from gpupack_crds import names
from gpupack_crds.acceptance import Acceptance
from gpupack_crds.gpunode import Measured
from gpupack_crds.plan import PlanRefusal

HERE = {"namespace": names.ACCEPTANCE_NAMESPACE}


@pytest.fixture
def world():
    """Node `a` with four GPUs, new ones of which are to be tried."""
    world = World(acceptance=Acceptance(new_gpus=True))
    world.add_node("a")
    return world


def phases(world, *, measured=range(4), **phase):
    """GPUs by their phase, `gpu2="Slow"`; the others have been measured."""
    entries = [{"gpu": uuid("a", int(key[-1])), "phase": said} for key, said in phase.items()]
    told = gpu_node("a", quarantine=entries)
    found = tuple(
        Measured(gpu=uuid("a", number), at="2026-11-24T00:00:00Z", outcome="Passed")
        for number in measured
    )
    status = msgspec.structs.replace(told.status, measured=found)
    world.ledger.gpus.upsert(msgspec.structs.replace(told, status=status))


def devices(plan):
    return sorted(device.uuid for each in places(plan) for device in each.devices)


def test_burn_ins_get_the_gpus_in_acceptance_and_no_others(world):
    phases(world, gpu1="Acceptance", gpu2="Acceptance")
    plan = world.plan(plan_request("burn-in", workers=2, **HERE))
    assert devices(plan) == [uuid("a", 1), uuid("a", 2)]
    refused = world.plan(plan_request("one-more", **HERE))
    assert isinstance(refused, PlanRefusal)


def test_nobody_else_gets_a_gpu_in_acceptance(world):
    phases(world, gpu0="Acceptance", gpu1="Acceptance", gpu2="Acceptance")
    plan = world.plan(plan_request("first"))
    assert devices(plan) == [uuid("a", 3)]
    assert isinstance(world.plan(plan_request("second")), PlanRefusal)


@pytest.mark.parametrize("asking", [{names.GPU: "1"}, "share"])
def test_nor_does_a_pod_of_its_own_even_in_the_namespace_of_burn_ins(world, asking):
    phases(world, **{f"gpu{number}": "Acceptance" for number in range(4)})
    if asking == "share":
        asking = {names.GPU_SHARE: "1", names.GPU_PERCENT: "10", names.GPU_MEMORY: "1Gi"}
    for where in ({}, HERE):
        assert not world.filter(pod("p", asking=asking, **where), nodes=["a"]).node_names


def test_a_gpu_that_nobody_has_measured_gets_no_work_before_it_is_tried(world):
    phases(world, measured=[3])
    assert devices(world.plan(plan_request("first"))) == [uuid("a", 3)]
    assert isinstance(world.plan(plan_request("second")), PlanRefusal)
    assert isinstance(world.plan(plan_request("burn-in", **HERE)), PlanRefusal)


def test_one_that_is_slow_is_used_last(world):
    phases(world, gpu0="Slow", gpu1="Slow", gpu2="Slow")
    assert devices(world.plan(plan_request("first"))) == [uuid("a", 3)]
    assert devices(world.plan(plan_request("second"))) == [uuid("a", 0)]


def test_where_nobody_tries_gpus_time_decides_about_those_that_wait_for_it():
    world = World(acceptance=None)
    world.add_node("a")
    phases(world, measured=(), **{f"gpu{number}": "Acceptance" for number in range(4)})
    assert len(devices(world.plan(plan_request("first", gpus=4)))) == 4


def test_who_has_a_gpu_keeps_it_when_it_comes_to_be_tried_and_afterwards(world):
    phases(world)
    bound = world.bind(pod("holder", asking={names.GPU: "3"}), "a")
    phases(world, **{f"gpu{number}": "Acceptance" for number in range(4)})
    assert len(devices(world.plan(plan_request("burn-in", **HERE)))) == 1
    assert isinstance(world.plan(plan_request("other", **HERE)), PlanRefusal)
    phases(world)
    assert isinstance(world.plan(plan_request("first")), PlanRefusal)
    world.ledger.pods.remove(bound)
    assert len(devices(world.plan(plan_request("first", gpus=3)))) == 3


def test_a_burn_in_has_its_gpu_by_name_as_any_gpujob(world):
    phases(world, gpu2="Acceptance")
    world.plan(plan_request("burn-in", **HERE))
    world.written("burn-in", **HERE)
    assert world.left("a") == [100, 100, 0, 100]
    phases(world)
    assert world.left("a") == [100, 100, 0, 100]


def with_figures(world, name, *tflops):
    told = gpu_node(name)
    found = tuple(
        Measured(gpu=uuid(name, number), at="2026-11-24T00:00:00Z", outcome="Passed", tflops=figure)
        for number, figure in enumerate(tflops)
    )
    status = msgspec.structs.replace(told.status, measured=found)
    world.ledger.gpus.upsert(msgspec.structs.replace(told, status=status))


def speeds(world, name):
    return [device.speed for device in world.ledger.cluster.node(name).devices]


def test_what_burn_ins_measured_is_known_to_policies_by_the_median_of_the_model(world):
    world.add_node("b")
    with_figures(world, "a", 600, 600, 600, 300)
    assert speeds(world, "a") == [1000, 1000, 1000, 500]
    assert speeds(world, "b") == [1000] * 4
    with_figures(world, "b", 1000, 1000, 1000, 1000)
    assert speeds(world, "a") == [760, 760, 760, 380]


def test_a_policy_with_pace_plans_a_gang_beside_the_slow_gpu(world):
    world.add_node("b")
    with_figures(world, "a", 600, 300, 600, 600)
    with_figures(world, "b", 600, 600, 600, 600)
    plan = world.plan(plan_request("small", policy="pace", gpus=2))
    assert devices(plan) == [uuid("a", 0), uuid("a", 2)]
