# SPDX-License-Identifier: Apache-2.0
"""Only burn-ins get GPUs in acceptance."""

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
    shown = gpu_node("a", quarantine=entries)
    found = tuple(
        Measured(gpu=uuid("a", number), at="2026-11-24T00:00:00Z", outcome="Passed")
        for number in measured
    )
    status = msgspec.structs.replace(shown.status, measured=found)
    world.ledger.gpus.upsert(msgspec.structs.replace(shown, status=status))


def devices(plan):
    return sorted(device.uuid for each in places(plan) for device in each.devices)


def test_burn_ins_get_the_gpus_in_acceptance_and_no_others(world):
    phases(world, gpu1="Acceptance", gpu2="Acceptance")
    plan = world.plan(plan_request("burn-in", workers=2, **HERE))
    assert devices(plan) == [uuid("a", 1), uuid("a", 2)]
    refused = world.plan(plan_request("one-more", **HERE))
    assert isinstance(refused, PlanRefusal)


def test_only_burn_ins_get_a_gpu_in_acceptance(world):
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


def test_a_gpu_without_a_burn_in_result_gets_no_work(world):
    phases(world, measured=[3])
    assert devices(world.plan(plan_request("first"))) == [uuid("a", 3)]
    assert isinstance(world.plan(plan_request("second")), PlanRefusal)
    assert isinstance(world.plan(plan_request("burn-in", **HERE)), PlanRefusal)


def test_a_slow_gpu_is_used_last(world):
    phases(world, gpu0="Slow", gpu1="Slow", gpu2="Slow")
    assert devices(world.plan(plan_request("first"))) == [uuid("a", 3)]
    assert devices(world.plan(plan_request("second"))) == [uuid("a", 0)]


def test_without_burn_ins_gpus_in_acceptance_get_work():
    world = World(acceptance=None)
    world.add_node("a")
    phases(world, measured=(), **{f"gpu{number}": "Acceptance" for number in range(4)})
    assert len(devices(world.plan(plan_request("first", gpus=4)))) == 4


def test_a_holder_keeps_its_gpu_when_the_gpu_enters_acceptance(world):
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
    shown = gpu_node(name)
    found = tuple(
        Measured(gpu=uuid(name, number), at="2026-11-24T00:00:00Z", outcome="Passed", tflops=figure)
        for number, figure in enumerate(tflops)
    )
    status = msgspec.structs.replace(shown.status, measured=found)
    world.ledger.gpus.upsert(msgspec.structs.replace(shown, status=status))


def speeds(world, name):
    return [device.speed for device in world.ledger.cluster.node(name).devices]


def test_policies_get_burn_in_speeds_relative_to_the_median_of_the_model(world):
    world.add_node("b")
    with_figures(world, "a", 600, 600, 600, 300)
    assert speeds(world, "a") == [1000, 1000, 1000, 500]
    assert speeds(world, "b") == [1000] * 4
    with_figures(world, "b", 1000, 1000, 1000, 1000)
    assert speeds(world, "a") == [760, 760, 760, 380]


def test_a_speed_aware_policy_plans_a_gang_without_the_slow_gpu(world):
    world.add_node("b")
    with_figures(world, "a", 600, 300, 600, 600)
    with_figures(world, "b", 600, 600, 600, 600)
    plan = world.plan(plan_request("small", policy="pace", gpus=2))
    assert devices(plan) == [uuid("a", 0), uuid("a", 2)]
