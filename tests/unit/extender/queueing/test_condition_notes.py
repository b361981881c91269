# SPDX-License-Identifier: Apache-2.0
"""The idle condition of a pod is written once when it begins and once when it ends."""

import msgspec
import pytest
from extender_builders import pod, whole

from gpupack_crds import names
from gpupack_crds.gpucohort import IdlePods
from gpupack_extender.queueing.condition_notes import AGAIN_SECONDS, MAX_WRITES, ConditionWriter
from gpupack_kubeclient.events import EventWriter, Reporter
from gpupack_scheduler.queueing.pods.conditions import IDLE
from gpupack_scheduler.queueing.pods.idling import IdlePod

RULE = IdlePods(after_seconds=600, reclaim="OptedIn")


class Notes:
    """Pods of the ledger, and the idle ones among them."""

    def __init__(self, world, api, server):
        self.world, self.server, self.idle, self.now = world, server, [], 0.0
        events = EventWriter(api, Reporter("gpupack.dev/scheduler", "s", "Tell"))
        self.notes = ConditionWriter(
            api, world.ledger, IDLE, self.idlers, events, decides=lambda: True
        )

    def idlers(self):
        return [
            IdlePod(
                self.world.ledger.claims.pods[f"uid-{name}"], 0.0, RULE, "cluster", reclaimed
            ).note
            for name, reclaimed in self.idle
        ]

    def show(self, name, number, *, called=None):
        shown = msgspec.to_builtins(pod(name, on="a", devices=whole("a", number)))
        if called is not None:
            condition = {"type": names.IDLE_CONDITION, "status": called}
            shown["status"]["conditions"] = [condition]
        self.world.ledger.pods.upsert(msgspec.convert(shown, type(pod(name))))
        meta = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
        self.server.pods[name] = {"metadata": meta}

    async def look(self, seconds=0.0):
        """What was written at a look so long after the last one."""
        self.now += seconds
        before = len(self.server.statuses)
        await self.notes.look(self.now)
        written = self.server.statuses[before:]
        return [each["status"]["conditions"][0] for each in written]


@pytest.fixture
def notes(world, api, server):
    return Notes(world, api, server)


async def test_an_idle_pod_gets_a_condition_and_an_event_that_explains_eviction(notes):
    notes.show("a", 0)
    notes.idle = [("a", False)]
    (condition,) = await notes.look()
    assert (condition["type"], condition["status"]) == ("gpupack.dev/Idle", "True")
    (event,) = notes.server.events
    assert event["reason"] == "GpuIdle"
    assert "annotate it gpupack.dev/reclaim-when-idle=true" in event["note"]
    assert (notes.notes.pods, notes.notes.gpus) == (1, 1)


async def test_the_condition_of_an_evicted_pod_says_that_its_owner_enabled_eviction(notes):
    notes.show("a", 0)
    notes.idle = [("a", True)]
    await notes.look()
    assert notes.server.events[0]["note"].endswith("it is evicted, as its owner wants")


async def test_an_existing_condition_is_not_written_again_by_a_new_process(notes):
    notes.show("a", 0, called="True")
    notes.idle = [("a", False)]
    assert await notes.look() == []


async def test_before_the_watch_shows_a_write_it_is_not_repeated(notes):
    notes.show("a", 0)
    notes.idle = [("a", False)]
    assert len(await notes.look()) == 1
    assert await notes.look(AGAIN_SECONDS - 1) == []
    assert len(await notes.look(2)) == 1


async def test_the_condition_is_cleared_when_the_pod_works_again(notes):
    notes.show("a", 0, called="True")
    (condition,) = await notes.look()
    assert (condition["status"], condition["reason"]) == ("False", "GpuInUse")
    notes.show("a", 0, called="False")
    assert await notes.look(AGAIN_SECONDS + 1) == []


async def test_each_pass_writes_a_limited_number_of_conditions_and_the_next_pass_the_others(notes):
    pods = [f"p{number}" for number in range(MAX_WRITES + 3)]
    for number, name in enumerate(pods):
        notes.show(name, number % 4)
    notes.idle = [(name, False) for name in pods]
    assert len(await notes.look()) == MAX_WRITES
    assert len(await notes.look(5)) == 3
