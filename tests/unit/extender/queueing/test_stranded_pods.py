# SPDX-License-Identifier: Apache-2.0
"""Pods are told that their only node cannot take them, once, and that it did after all."""

import msgspec
import pytest
from extender_builders import pod, whole

from gpupack_crds import names
from gpupack_extender.queueing.condition_notes import AGAIN_SECONDS, ConditionWriter
from gpupack_kubeclient.events import EventWriter, Reporter
from gpupack_scheduler.queueing.conditions import STRANDED
from gpupack_scheduler.queueing.stranded import Stranded


def shown(name, *, on="", told=None):
    built = msgspec.to_builtins(pod(name, on=on, devices=whole("a", 0) if on else None))
    if told:
        condition = {"type": names.STRANDED_CONDITION, "status": "True", "reason": told}
        built["status"]["conditions"] = [condition]
    return msgspec.convert(built, type(pod(name)))


@pytest.fixture
def look(world, api, server):
    """What is written at a look at these stranded pods."""
    found = []
    events = EventWriter(api, Reporter("gpupack.dev/scheduler", "s", "Tell"))
    task = ConditionWriter(
        api,
        world.ledger,
        STRANDED,
        lambda: [each.note for each in found],
        events,
        decides=lambda: True,
    )

    async def at(now, *stranded):
        found[:] = stranded
        for each in stranded:
            world.ledger.pods.let_in[each.pod.metadata.uid] = each.pod
        before = len(server.statuses)
        await task.look(now)
        return [each["status"]["conditions"][0] for each in server.statuses[before:]]

    server.pods["p"] = {"metadata": {"name": "p", "namespace": "team", "uid": "uid-p"}}
    return at


async def test_a_pod_is_told_once_by_condition_and_event(look, server):
    (told,) = await look(0.0, Stranded(shown("p"), "gone", node_is_gone=True))
    assert (told["type"], told["status"], told["reason"]) == (
        names.STRANDED_CONDITION,
        "True",
        "NodeDeleted",
    )
    assert len(server.events) == 1
    assert await look(1.0, Stranded(shown("p"), "gone", node_is_gone=True)) == []
    after = Stranded(shown("p", told="NodeDeleted"), "gone", node_is_gone=True)
    assert await look(1.0 + AGAIN_SECONDS, after) == []


async def test_the_reason_is_told_again_when_it_changes(look):
    before = shown("p", told="NodeUnsuitable")
    (told,) = await look(0.0, Stranded(before, "gone", node_is_gone=True))
    assert told["reason"] == "NodeDeleted"


async def test_a_pod_whose_node_has_returned_is_told_so_before_it_is_bound(look, world, server):
    world.ledger.pods.let_in["uid-p"] = shown("p", told="NodeDeleted")
    (told,) = await look(0.0)
    assert (told["status"], told["reason"]) == ("False", "NodeReturned")
    assert server.events == []


async def test_a_pod_that_was_bound_after_all_is_told_so(look, world, server):
    world.ledger.pods.upsert(shown("p", on="a", told="NodeUnsuitable"))
    (told,) = await look(0.0)
    assert (told["status"], told["reason"]) == ("False", "Bound")
    assert server.events == []
