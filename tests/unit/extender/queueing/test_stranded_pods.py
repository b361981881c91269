# SPDX-License-Identifier: Apache-2.0
"""The stranded condition of a pod is written once, and cleared when its node takes the pod."""

import msgspec
import pytest
from extender_builders import pod, whole

from gpupack_crds import names
from gpupack_extender.queueing.condition_notes import AGAIN_SECONDS, ConditionWriter
from gpupack_kubeclient.events import EventWriter, Reporter
from gpupack_scheduler.queueing.pods.admitted_pods import Stranded
from gpupack_scheduler.queueing.pods.conditions import STRANDED


def shown(name, *, on="", reason=None):
    built = msgspec.to_builtins(pod(name, on=on, devices=whole("a", 0) if on else None))
    if reason:
        condition = {"type": names.STRANDED_CONDITION, "status": "True", "reason": reason}
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


async def test_a_stranded_pod_gets_one_condition_and_one_event(look, server):
    (condition,) = await look(0.0, Stranded(shown("p"), "gone", node_is_gone=True))
    assert (condition["type"], condition["status"], condition["reason"]) == (
        names.STRANDED_CONDITION,
        "True",
        "NodeDeleted",
    )
    assert len(server.events) == 1
    assert await look(1.0, Stranded(shown("p"), "gone", node_is_gone=True)) == []
    after = Stranded(shown("p", reason="NodeDeleted"), "gone", node_is_gone=True)
    assert await look(1.0 + AGAIN_SECONDS, after) == []


async def test_the_condition_is_written_again_when_its_reason_changes(look):
    before = shown("p", reason="NodeUnsuitable")
    (condition,) = await look(0.0, Stranded(before, "gone", node_is_gone=True))
    assert condition["reason"] == "NodeDeleted"


async def test_the_condition_says_that_the_node_returned_before_the_pod_is_bound(
    look, world, server
):
    world.ledger.pods.let_in["uid-p"] = shown("p", reason="NodeDeleted")
    (condition,) = await look(0.0)
    assert (condition["status"], condition["reason"]) == ("False", "NodeReturned")
    assert server.events == []


async def test_the_condition_says_that_the_pod_was_bound_after_all(look, world, server):
    world.ledger.pods.upsert(shown("p", on="a", reason="NodeUnsuitable"))
    (condition,) = await look(0.0)
    assert (condition["status"], condition["reason"]) == ("False", "Bound")
    assert server.events == []
