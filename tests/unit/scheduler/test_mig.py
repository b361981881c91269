# SPDX-License-Identifier: Apache-2.0
"""MIG slices of nodes of our own, from limits and GPUJobs to places."""

import msgspec
import pytest
from extender_builders import World, gpu_node, node, plan_request, pod

from gpupack_crds import names
from gpupack_crds.kinds import GpuNode
from gpupack_scheduler.ledger import claims

SMALL = "gpupack.dev/mig-1g.10gb"
HALF = "gpupack.dev/mig-3g.40gb"
CUT = (("1g.10gb", 0), ("1g.10gb", 1), ("3g.40gb", 4))


def cut_node(name, *, layouts=(CUT,), gpus=0, **changes):
    """A GPUNode with whole GPUs, and others that are cut into slices."""
    raw = msgspec.to_builtins(gpu_node(name, gpus=gpus, **changes))
    devices = [*raw["status"].get("devices", ())]
    for number, layout in enumerate(layouts, gpus):
        devices += [
            {
                "uuid": f"MIG-{name}-{number}-{start}",
                "index": number,
                "model": f"NVIDIA H100 80GB HBM3 MIG {profile}",
                "memoryMiB": 9984,
                "migParent": f"GPU-{name}-{number}",
                "migProfile": profile,
                "migStart": start,
                "migSize": 1,
            }
            for profile, start in layout
        ]
    raw["status"]["devices"] = devices
    return msgspec.convert(raw, GpuNode)


@pytest.fixture
def cut():
    world = World()
    world.ledger.gpus.upsert(cut_node("x", layouts=(CUT, CUT)))
    world.ledger.nodes.upsert(node("x", tickets=0, slots=0, **{SMALL: 4, HALF: 2}))
    return world


def placed(world, name, asking):
    """Where a pod may go, and which devices it is bound with."""
    found = world.filter(pod(name, asking=asking), nodes=["x"])
    if not found.node_names:
        return next(iter((found.failed_nodes | found.failed_and_unresolvable_nodes).values()))
    claim = world.ledger.claims.pods[f"uid-{name}"]
    return [grant.uuid for grant in claim.placement.devices]


def test_a_pod_gets_slices_of_the_profile_that_it_asks_for(cut):
    assert placed(cut, "p", {HALF: 1}) == ["MIG-x-0-4"]


def test_slices_come_from_gpus_that_are_used_already(cut):
    assert placed(cut, "p", {SMALL: 1}) == ["MIG-x-0-0"]
    assert placed(cut, "q", {HALF: 1}) == ["MIG-x-0-4"]
    assert placed(cut, "r", {SMALL: 1}) == ["MIG-x-0-1"]
    assert placed(cut, "s", {SMALL: 1}) == ["MIG-x-1-0"]


def test_a_request_for_more_slices_than_are_free_is_refused_with_the_reason(cut):
    placed(cut, "p", {HALF: 2})
    text = placed(cut, "q", {HALF: 1})
    assert "fewer than 1 free MIG slice 3g.40gb" in text


def test_a_request_for_a_profile_that_no_gpu_has_is_refused_with_the_reason(cut):
    assert "no MIG slices 7g.80gb" in placed(cut, "p", {"gpupack.dev/mig-7g.80gb": 1})


def test_slices_are_no_gpus_and_no_shares(cut):
    assert "cut into MIG slices" in placed(cut, "p", {names.GPU: 1})


def test_a_profile_with_media_engines_is_spelt_with_a_dot_in_its_resource():
    world = World()
    world.ledger.gpus.upsert(cut_node("x", layouts=((("1g.10gb+me", 0), ("1g.10gb", 1)),)))
    world.ledger.nodes.upsert(node("x", tickets=0, slots=0, **{SMALL: 1, f"{SMALL}.me": 1}))
    assert placed(world, "p", {f"{SMALL}.me": 1}) == ["MIG-x-0-0"]


@pytest.mark.parametrize(
    ("asking", "text"),
    [
        ({"gpupack.dev/mig-9g.10gb": 1}, "names no MIG profile"),
        ({SMALL: 0}, "ask for 1 or more"),
        ({SMALL: 1, HALF: 1}, "asks for gpupack.dev/mig-1g.10gb and gpupack.dev/mig-3g.40gb"),
        ({SMALL: 1, names.GPU: 1}, "asks for gpupack.dev/gpu and gpupack.dev/mig-1g.10gb"),
        ({SMALL: 1 << 20}, "no node has more than"),
    ],
)
def test_an_invalid_slice_request_is_refused_with_the_reason(cut, asking, text):
    assert text in placed(cut, "p", asking)


def test_a_node_gets_no_work_before_its_kubelet_knows_each_profile():
    world = World()
    world.ledger.gpus.upsert(cut_node("x"))
    world.ledger.nodes.upsert(node("x", tickets=0, slots=0, **{SMALL: 2}))
    assert isinstance(placed(world, "p", {SMALL: 1}), str)


def test_a_node_may_have_slices_and_whole_gpus():
    world = World()
    world.ledger.gpus.upsert(cut_node("x", gpus=1))
    world.ledger.nodes.upsert(node("x", tickets=1, slots=20, **{SMALL: 2, HALF: 1}))
    assert placed(world, "p", {names.GPU: 1}) == ["GPU-x-0"]
    assert placed(world, "q", {SMALL: 2}) == ["MIG-x-1-0", "MIG-x-1-1"]


@pytest.mark.parametrize(
    "spec",
    [
        {"quarantine": [{"gpu": "GPU-x-0"}]},
        {"maintenance": [{"reason": "a fan", "gpus": ["GPU-x-0"]}]},
    ],
)
def test_quarantine_and_maintenance_of_a_gpu_apply_to_its_slices(spec):
    world = World()
    world.ledger.gpus.upsert(cut_node("x", layouts=(CUT, CUT), **spec))
    world.ledger.nodes.upsert(node("x", tickets=0, slots=0, **{SMALL: 4, HALF: 2}))
    assert placed(world, "p", {HALF: 1}) == ["MIG-x-1-4"]


def test_a_pod_that_is_bound_holds_its_slices_again_after_a_restart(cut):
    placed(cut, "p", {HALF: 1})
    claim = cut.ledger.claims.pods["uid-p"]
    again = World()
    again.ledger.gpus.upsert(cut_node("x", layouts=(CUT, CUT)))
    again.ledger.nodes.upsert(node("x", tickets=0, slots=0, **{SMALL: 4, HALF: 2}))
    held = claims.shares(claim.placement)
    again.ledger.pods.upsert(pod("p", asking={HALF: 1}, devices=held, on="x", phase="Running"))
    assert again.ledger.claims.pods["uid-p"].allocation.tokens == {}
    assert placed(again, "q", {HALF: 1}) == ["MIG-x-1-4"]


def test_a_gang_gets_slices_or_nothing(cut):
    plan = cut.plan(plan_request("j", workers=2, gpus=2, mig="1g.10gb"))
    assert sorted(uuid for entry in plan.placement for uuid in entry.gpus) == [
        *("MIG-x-0-0", "MIG-x-0-1", "MIG-x-1-0", "MIG-x-1-1")
    ]


def test_slices_that_are_about_to_be_replaced_get_no_new_work(cut):
    raw = msgspec.to_builtins(cut_node("x", layouts=(CUT, CUT)))
    raw["status"]["migGpus"] = [{"gpu": "GPU-x-0", "changing": True}, {"gpu": "GPU-x-1"}]
    cut.ledger.gpus.upsert(msgspec.convert(raw, GpuNode))
    assert placed(cut, "p", {HALF: 1}) == ["MIG-x-1-4"]
    assert "fewer than 1 free MIG slice 3g.40gb" in placed(cut, "q", {HALF: 1})
