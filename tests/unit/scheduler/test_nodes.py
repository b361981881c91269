# SPDX-License-Identifier: Apache-2.0
"""GPUs that the agents of two nodes list: they belong to one of them."""

import msgspec
import pytest
from extender_builders import OBSERVED, World, gpu_node, job, node, observed_node, pod, whole

from gpupack_scheduler.ledger.silent_nodes import LONG_SECONDS

LIAR = gpu_node("aaa", prefix="b")
"""The agent of node aaa lists the GPUs of node b."""


@pytest.fixture
def starting():
    """A world of which the extender, just started, has listed nothing yet."""
    return World()


def listed(world, *gpu_nodes, nodes=("aaa", "b")):
    """As the lists come at a start, by name."""
    world.ledger.nodes.replace([node(name) for name in nodes])
    world.ledger.gpus.replace(list(gpu_nodes))


def served(world):
    return [each.name for each in world.ledger.cluster.nodes()]


def test_a_node_that_lists_anothers_gpus_later_gets_no_work_and_the_other_does(world, caplog):
    world.ledger.nodes.upsert(node("aaa"))
    world.ledger.gpus.upsert(LIAR)
    assert served(world) == ["a", "b"]
    assert "node aaa gets no work: its agent lists GPU-b-0 (4 such GPUs)" in caplog.text
    assert "the agent of node b lists too" in caplog.text


def test_a_node_that_was_established_and_then_lies_is_the_one_that_gets_no_work(world):
    own, others = gpu_node("a"), gpu_node("b")
    both = msgspec.structs.replace(
        own.status, devices=(*own.status.devices[:1], *others.status.devices[1:])
    )
    world.ledger.gpus.upsert(msgspec.structs.replace(own, status=both))
    assert served(world) == ["b"]


def test_at_a_start_the_node_with_bound_pods_has_the_gpus(starting, caplog):
    listed(starting, LIAR, gpu_node("b"))
    assert served(starting) == []
    starting.ledger.pods.replace([pod("p", on="b", devices=whole("b", 2))])
    assert served(starting) == ["b"]
    assert "node aaa gets no work" in caplog.text


def test_at_a_start_the_node_with_planned_workers_has_the_gpus(starting):
    starting.ledger.jobs.replace([job("t", attempt=1, phase="Admitted", placed=[("b", [0])])])
    listed(starting, LIAR, gpu_node("b"))
    assert served(starting) == ["b"]


def test_at_a_start_neither_has_idle_gpus_in_dispute_and_both_are_named(starting, caplog):
    starting.ledger.pods.replace([])
    listed(starting, LIAR, gpu_node("b"))
    assert served(starting) == []
    for name, rival in (("aaa", "b"), ("b", "aaa")):
        assert f"node {name} gets no work: its agent lists GPU-b-0" in caplog.text
        assert f"which the agent of node {rival} lists too" in caplog.text


def test_the_order_in_which_lists_come_makes_no_difference(starting):
    starting.ledger.gpus.replace([LIAR, gpu_node("b")])
    starting.ledger.nodes.replace([node("aaa"), node("b")])
    assert served(starting) == []
    starting.ledger.pods.replace([pod("p", on="b", devices=whole("b", 2))])
    assert served(starting) == ["b"]


def test_reported_holders_do_not_prove_that_a_node_owns_the_gpus(starting):
    lying = gpu_node("aaa", prefix="b", lingering={"p": whole("b", 0)})
    listed(starting, lying, gpu_node("b"))
    starting.ledger.pods.replace([])
    assert served(starting) == []


def test_once_one_agent_lists_the_gpus_no_more_the_other_gets_work(starting):
    listed(starting, LIAR, gpu_node("b"))
    starting.ledger.gpus.upsert(gpu_node("aaa"))
    assert served(starting) == ["aaa", "b"]


def test_an_agent_cannot_claim_uuids_of_observed_nodes(starting):
    starting.ledger.nodes.replace([node("aaa"), observed_node("z")])
    shown = gpu_node("aaa", gpus=1)
    (device,) = shown.status.devices
    lie = msgspec.structs.replace(device, uuid=f"z/{OBSERVED}/0")
    lying = msgspec.structs.replace(
        shown, status=msgspec.structs.replace(shown.status, devices=(lie,))
    )
    starting.ledger.gpus.replace([lying, gpu_node("z", mode="observed", resource=OBSERVED)])
    assert served(starting) == ["z"]


def test_a_dispute_is_logged_once(world, caplog):
    world.ledger.nodes.upsert(node("aaa"))
    for _ in range(3):
        world.ledger.gpus.upsert(LIAR)
    assert caplog.text.count("node aaa gets no work") == 1


RENAMED = gpu_node("b2", prefix="b", of="uid-b2")
"""The host of node b has joined as b2."""


@pytest.fixture
def renamed(starting):
    """Node b with a stale GPUNode, and node b2."""
    starting.ledger.nodes.replace([node("b", uid="uid-b"), node("b2", uid="uid-b2")])
    starting.ledger.gpus.replace([gpu_node("b", of="uid-b")])
    starting.ledger.pods.replace([])
    return starting


def test_a_stale_gpunode_takes_no_gpus_from_other_nodes(renamed):
    renamed.ledger.nodes.remove(node("b"))
    renamed.ledger.gpus.upsert(RENAMED)
    assert served(renamed) == ["b2"]


def test_the_time_of_a_node_removal_makes_no_difference(renamed):
    renamed.ledger.gpus.upsert(RENAMED)
    assert served(renamed) == ["b"]
    renamed.ledger.nodes.remove(node("b"))
    assert served(renamed) == ["b2"]


def test_nor_does_a_start(starting):
    listed(starting, gpu_node("b", of="uid-b"), RENAMED, nodes=())
    starting.ledger.nodes.replace([node("b2", uid="uid-b2")])
    assert served(starting) == ["b2"]


def test_a_pod_that_is_still_shown_on_the_removed_node_takes_nothing_either(renamed):
    held = pod("p", on="b", devices=whole("b", 0), phase="Running")
    renamed.ledger.pods.upsert(held)
    renamed.ledger.nodes.remove(node("b"))
    renamed.ledger.gpus.upsert(RENAMED)
    assert served(renamed) == ["b2"]
    assert renamed.free("b2") == [0, 1, 2, 3]


def test_gpus_that_the_agent_reports_as_held_are_held(renamed):
    renamed.ledger.nodes.remove(node("b"))
    shown = gpu_node("b2", prefix="b", of="uid-b2", lingering={"p": whole("b", 0)})
    renamed.ledger.gpus.upsert(shown)
    assert renamed.free("b2") == [1, 2, 3]


def test_a_gpunode_of_an_earlier_node_of_the_name_says_nothing_about_this_one(renamed):
    renamed.ledger.nodes.upsert(node("b", uid="another"))
    assert served(renamed) == []
    renamed.ledger.gpus.upsert(RENAMED)
    assert served(renamed) == ["b2"]
    renamed.ledger.gpus.upsert(gpu_node("b", prefix="others", of="another"))
    assert served(renamed) == ["b2", "b"]


def test_a_node_without_a_recent_heartbeat_loses_its_claim(renamed):
    renamed.ledger.gpus.upsert(RENAMED)
    renamed.ledger.nodes.upsert(node("b", uid="uid-b", ready="Unknown"))
    renamed.now += LONG_SECONDS - 1
    renamed.ledger.expire()
    assert served(renamed) == ["b"]
    renamed.now += 1
    renamed.ledger.expire()
    assert served(renamed) == ["b2"]
    assert [*renamed.ledger.rejected] == ["b"]


def test_a_silence_that_ends_in_time_is_none(renamed):
    renamed.ledger.gpus.upsert(RENAMED)
    for ready in ("Unknown", "True", "Unknown"):
        renamed.ledger.nodes.upsert(node("b", uid="uid-b", ready=ready))
        renamed.now += LONG_SECONDS - 1
        renamed.ledger.expire()
    assert served(renamed) == ["b"]


def test_of_two_nodes_without_heartbeats_the_first_keeps_the_gpus(renamed):
    renamed.ledger.gpus.upsert(RENAMED)
    for name in ("b", "b2"):
        renamed.ledger.nodes.upsert(node(name, uid=f"uid-{name}", ready="Unknown"))
    renamed.now += LONG_SECONDS
    for _ in range(3):
        renamed.ledger.nodes.upsert(node("c"))
        assert served(renamed) == ["b"]


def test_a_dispute_names_the_other_node_and_what_to_do(renamed):
    renamed.ledger.gpus.upsert(RENAMED)
    why = renamed.ledger.rejected["b2"]
    assert why.reason == "DuplicateGpus"
    assert "the agent of node b lists too" in str(why)
    assert "kubectl delete node b" in str(why)
