# SPDX-License-Identifier: Apache-2.0
"""Pods behind the gate say why they wait, seldom enough."""

import dataclasses

import msgspec
import pytest
from extender_builders import gated

from gpupack_extender.queueing.pod_notes import FIRST_SECONDS, PodNotes
from gpupack_scheduler.queueing.pods import admitted_pods
from gpupack_scheduler.queueing.settings import QueueSettings


@pytest.fixture
def full(world):
    """Two nodes of 4 GPUs, all held by one job."""
    world.asks("holder", workers=2, gpus=4)
    world.written("holder")
    return world


@pytest.fixture
def tells(full, api, server):
    """Waits for so many seconds, and returns the texts that were written."""
    notes = PodNotes(api, full.ledger.pods, full.owner, decides=lambda: True)

    async def look(seconds):
        full.now += seconds
        before = len(server.statuses)
        await notes.look(full.now)
        written = server.statuses[before:]
        return [each["status"]["conditions"][0]["message"] for each in written]

    return look


def waits(world, server, name="p", **changes):
    shown = gated(name, **changes)
    server.pods[name] = {"metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"}}
    world.ledger.pods.upsert(shown)
    world.decide()
    return shown


async def test_a_pod_that_waits_says_why_and_when_it_starts(full, server, tells):
    waits(full, server)
    assert await tells(0) == []
    (text,) = await tells(FIRST_SECONDS)
    assert "fewer than 1 free GPU" in text
    assert "no start time is known" in text
    (condition,) = server.statuses[0]["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")


async def test_a_text_that_stands_there_is_not_written_again(full, server, tells):
    shown = waits(full, server)
    await tells(0)
    (text,) = await tells(FIRST_SECONDS)
    condition = {"type": "PodScheduled", "status": "False", "message": text}
    status = msgspec.convert({"conditions": [condition]}, type(shown.status))
    full.ledger.pods.upsert(msgspec.structs.replace(shown, status=status))
    full.decide()
    assert await tells(20) == []


async def test_texts_are_looked_at_later_each_time(full, server, tells):
    waits(full, server)
    await tells(0)
    found = [len(await tells(seconds)) for seconds in (1, 5, 10, 15, 15, 30, 30)]
    assert found == [1, 0, 1, 0, 1, 0, 1]


async def test_many_pending_pods_get_their_conditions_in_batches(full, server, tells):
    for number in range(12):
        waits(full, server, f"p{number}")
    await tells(0)
    assert [len(await tells(seconds)) for seconds in (1, 0, 0, 0)] == [5, 5, 2, 0]


async def test_an_admitted_pod_gets_no_condition(full, server, tells):
    waits(full, server)
    await tells(0)
    full.ends("holder")
    full.decide()
    full.ledger.pods.upsert(gated("p", gates=()))
    full.decide()
    assert await tells(20) == []


@pytest.mark.parametrize(("after", "shown"), [(None, 0), (0, 1), (600, 0)])
async def test_a_pod_that_does_not_fit_for_long_is_shown_to_autoscalers(
    full, server, tells, after, shown
):
    queue = dataclasses.replace(
        full.decisions, queue=QueueSettings(notify_autoscaler_after_seconds=after)
    )
    full.owner.observed.decisions = queue
    waits(full, server)
    await tells(0)
    await tells(FIRST_SECONDS)
    assert [place for _, place in full.gates.opened] == [None] * shown


async def test_no_condition_is_written_while_the_limit_of_admitted_pods_is_reached(
    full, server, tells, monkeypatch
):
    waits(full, server)
    await tells(0)
    monkeypatch.setattr(admitted_pods, "MAX_ADMITTED_PODS", 0)
    assert await tells(FIRST_SECONDS) == []
    monkeypatch.setattr(admitted_pods, "MAX_ADMITTED_PODS", 1)
    assert len(await tells(0)) == 1


async def test_namespaces_take_turns_however_many_wait_in_one(full, server, tells):
    for number in range(50):
        waits(full, server, f"p{number}")
    waits(full, server, "other", namespace="other")
    await tells(0)
    texts = await tells(FIRST_SECONDS)
    written = [each["metadata"]["uid"] for each in server.statuses]
    assert (len(texts), "uid-other" in written) == (5, True)
