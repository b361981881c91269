# SPDX-License-Identifier: Apache-2.0
"""GPUs that the agents of two nodes list: whose are they?"""

import msgspec
import pytest
from extender_builders import OBSERVED, World, gpu_node, job, node, observed_node, pod, whole

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
    starting.ledger.nodes.upsert(node("aaa"))
    assert served(starting) == []
    starting.ledger.nodes.upsert(node("b"))
    starting.ledger.pods.replace([pod("p", on="b", devices=whole("b", 2))])
    assert served(starting) == ["b"]


def test_what_lingers_is_an_agents_word_and_proves_nothing(starting):
    lying = gpu_node("aaa", prefix="b", lingering={"p": whole("b", 0)})
    listed(starting, lying, gpu_node("b"))
    starting.ledger.pods.replace([])
    assert served(starting) == []


def test_once_one_agent_lists_the_gpus_no_more_the_other_gets_work(starting):
    listed(starting, LIAR, gpu_node("b"))
    starting.ledger.gpus.upsert(gpu_node("aaa"))
    assert served(starting) == ["aaa", "b"]


def test_an_agent_cannot_list_what_gpus_of_observed_nodes_are_called(starting):
    starting.ledger.nodes.replace([node("aaa"), observed_node("z")])
    told = gpu_node("aaa", gpus=1)
    (device,) = told.status.devices
    lie = msgspec.structs.replace(device, uuid=f"z/{OBSERVED}/0")
    lying = msgspec.structs.replace(
        told, status=msgspec.structs.replace(told.status, devices=(lie,))
    )
    starting.ledger.gpus.replace([lying, gpu_node("z", mode="observed", resource=OBSERVED)])
    assert served(starting) == ["z"]


def test_a_dispute_is_logged_once(world, caplog):
    world.ledger.nodes.upsert(node("aaa"))
    for _ in range(3):
        world.ledger.gpus.upsert(LIAR)
    assert caplog.text.count("node aaa gets no work") == 1
