# SPDX-License-Identifier: Apache-2.0
"""Gates are opened once, whatever becomes of the write and of its answer."""

import asyncio
import json

import msgspec
import pytest
from extender_builders import gated, whole

from gpupack_crds import names
from gpupack_crds.gpujob_status import Preemption, Victims
from gpupack_extender.queueing import gates
from gpupack_extender.queueing.gates import Gates
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.requests.needs import Needs
from gpupack_scheduler.requests.pod_groups import Membership


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(gates, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(gates, "AGAIN_SECONDS", 0.05)


@pytest.fixture
async def opener(api, world, quick):
    world.leads = True
    opening = Gates(api, world.ledger, leads=lambda: world.leads)
    running = asyncio.create_task(opening.run())
    yield opening
    running.cancel()


def shown_by(server, **changes):
    """The pod as the API server has it."""
    raw = {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "uid-p",
            "resourceVersion": "7",
            **changes,
        },
        "spec": {"schedulingGates": [{"name": names.QUEUE_GATE}]},
    }
    server.pods["p"] = raw
    return raw


def held(world):
    """A place that the queue holds for the pod as its gate is opened."""
    asked = gated("p")
    world.ledger.pods.upsert(asked)
    place = world.ledger.claims.allocation(
        claims.placement("a", whole("a", 0), needs=Needs(cpu=1000))
    )
    world.ledger.hold(world.ledger.pods.waiting("uid-p"), place, seconds=60)
    return asked, place


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def settled(opening):
    """Until nothing is being opened."""
    await until(lambda: not opening._busy)


async def test_a_gate_is_removed_with_the_placement_in_an_annotation(opener, server, world):
    raw = shown_by(server)
    opener.open(*held(world))
    await settled(opener)
    assert "schedulingGates" not in raw["spec"]
    assert '"node":"a"' in raw["metadata"]["annotations"][names.PLACEMENT_ANNOTATION]


async def test_the_placement_of_a_member_names_its_gang(opener, server, world):
    raw = shown_by(server)
    member = Membership(source="gpupack.dev", name="ring", gang="uid-q", at=1, members=2)
    opener.open(*held(world), member)
    await settled(opener)
    place = json.loads(raw["metadata"]["annotations"][names.PLACEMENT_ANNOTATION])
    assert msgspec.convert(place["group"], Membership) == member


@pytest.mark.parametrize("fault", ["lost before", "lost after"])
async def test_a_lost_answer_is_a_question_and_not_a_failure(opener, server, world, fault):
    raw = shown_by(server)
    server.faults = [fault]
    opener.open(*held(world))
    await settled(opener)
    assert "schedulingGates" not in raw["spec"]
    assert world.states() == ["assumed"]
    assert len(server.patches) == (2 if fault == "lost before" else 1)


async def test_a_pod_that_has_changed_is_read_and_opened_as_it_is(opener, server, world):
    raw = shown_by(server, resourceVersion="8")
    opener.open(*held(world))
    await settled(opener)
    assert "schedulingGates" not in raw["spec"]


async def test_the_gpus_of_a_deleted_pod_are_released(opener, server, world):
    opener.open(*held(world))
    await settled(opener)
    await until(lambda: "uid-p" in world.ledger.changes.gates)
    assert world.states() == []


async def test_a_new_pod_of_the_same_name_is_a_different_pod(opener, server, world):
    raw = shown_by(server, uid="uid-other")
    opener.open(*held(world))
    await settled(opener)
    assert "schedulingGates" in raw["spec"]


async def test_a_refused_write_is_repeated_later_with_the_current_placement(opener, server, world):
    shown_by(server)
    server.faults = ["forbidden"]
    opener.open(*held(world))
    await settled(opener)
    assert world.states() == []
    world.ledger.changes.take()
    await until(lambda: "uid-p" in world.ledger.changes.gates)


async def test_a_gate_is_not_removed_for_an_expired_placement(opener, server, world):
    raw = shown_by(server)
    asked, place = held(world)
    world.now += 61
    world.ledger.expire()
    opener.open(asked, place)
    await settled(opener)
    assert (server.patches, "schedulingGates" in raw["spec"]) == ([], True)


async def test_an_old_failure_does_not_release_a_new_placement(opener, server, world):
    server.faults = ["forbidden"]
    shown_by(server)
    opener.record(gated("p"), stopped())
    await settled(opener)
    held(world)
    await asyncio.sleep(0.1)
    assert world.states() == ["assumed"]


async def test_a_write_that_never_succeeds_is_given_up(opener, server, world):
    shown_by(server)
    server.faults = ["lost before"] * gates.MAX_TRIES
    opener.open(*held(world))
    await settled(opener)
    assert len(server.patches) == gates.MAX_TRIES


async def test_no_write_is_sent_once_another_replica_leads(opener, server, world):
    raw = shown_by(server)
    world.leads = False
    opener.open(*held(world))
    await settled(opener)
    assert (server.patches, "schedulingGates" in raw["spec"]) == ([], True)


async def test_a_pod_without_a_placement_is_left_to_the_filter(opener, server, world):
    raw = shown_by(server)
    opener.open(gated("p"), None)
    await settled(opener)
    assert "schedulingGates" not in raw["spec"]
    assert raw["metadata"]["annotations"] == {}


async def test_the_last_write_of_a_pod_wins(opener, server, world):
    raw = shown_by(server)
    asked = gated("p")
    opener.record(asked, stopped())
    opener.record(asked, None)
    await settled(opener)
    assert raw["metadata"]["annotations"] == {}
    assert len(server.patches) == 1


async def test_the_victims_of_a_pod_are_recorded_before_its_gate_is_removed(opener, server, world):
    raw = shown_by(server)
    asked, place = held(world)
    server.faults = ["lost after"]
    opener.record(asked, stopped())
    await asyncio.sleep(0.02)
    opener.open(asked, place)
    await settled(opener)
    first, *_, last = server.patches
    assert "schedulingGates" not in first.get("spec", {})
    assert (last["spec"]["schedulingGates"], "schedulingGates" in raw["spec"]) == (None, False)
    assert last["metadata"]["annotations"][names.PREEMPTION_ANNOTATION] is None


def stopped():
    victims = (Victims(reason="InCohortFairSharing", attempts=("uid/1",)),)
    return Preemption(since="2026-01-01T00:00:00Z", victims=victims, placement=())
