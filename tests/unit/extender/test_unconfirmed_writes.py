# SPDX-License-Identifier: Apache-2.0
"""Bindings and plans that no watch event has shown."""

import asyncio

import pytest
from extender_builders import job, plan_request, pod

from gpupack_crds.plan import PlanRefusal
from gpupack_extender.unconfirmed_writes import (
    GIVE_UP_SECONDS,
    UnconfirmedBinds,
    UnconfirmedPlans,
    UnconfirmedWrites,
)
from gpupack_kubeclient import errors
from gpupack_scheduler.ledger.ledger import Outcome


@pytest.fixture
def asking(world, api):
    """An expired plan of all eight GPUs, and the task that checks it."""
    world.plan(plan_request("train", workers=8, version="7"))
    world.now += 10
    return UnconfirmedPlans(api, world.ledger)


@pytest.fixture
def ask(world, asking):
    async def ask():
        for plan in asking.unconfirmed():
            await asking.ask(plan)

    return ask


def is_held(world):
    return isinstance(world.plan(plan_request("other", workers=8)), PlanRefusal)


async def test_a_plan_whose_write_the_watch_has_not_shown_is_held(world, server, ask):
    places = [("a", [0, 1, 2, 3]), ("b", [0, 1, 2, 3])]
    server.jobs["train"] = job("train", attempt=1, phase="Admitted", placed=places, version="8")
    for _ in range(100):
        await ask()
        world.now += 10
    assert is_held(world)


@pytest.mark.parametrize(
    "now",
    [
        None,
        job("train", version="7", uid="uid-another"),
        job("train", version="8"),
        job("train", version="9", attempt=1, phase="Pending"),
        job("train", version="9", attempt=2, phase="Admitted", placed=[("a", [0])]),
    ],
    ids=["gone", "another of its name", "a later version", "attempt over", "a later attempt"],
)
async def test_the_gpus_of_a_plan_that_can_no_longer_be_written_are_free(world, server, ask, now):
    server.jobs["train"] = now
    await ask()
    assert not is_held(world)


async def test_a_plan_that_may_still_be_written_is_held_until_no_write_can_arrive(
    world, server, ask
):
    server.jobs["train"] = job("train", version="7")
    await ask()
    assert is_held(world)
    world.now += GIVE_UP_SECONDS
    await ask()
    assert not is_held(world)


async def test_no_gpus_are_released_while_the_api_server_does_not_answer(
    world, server, asking, ask
):
    server.jobs["train"] = object()
    await ask()
    assert is_held(world)


UNREADABLE = {"metadata": {"name": "train", "uid": 7}}


async def test_a_plan_whose_gpujob_cannot_be_read_is_held_until_no_write_can_arrive(
    world, server, ask
):
    server.jobs["train"] = UNREADABLE
    await ask()
    assert is_held(world)
    world.now += GIVE_UP_SECONDS
    await ask()
    assert not is_held(world)


async def test_a_plan_whose_gpujob_the_api_server_does_not_give_is_held(world, server, ask):
    server.jobs["train"] = object()
    world.now += GIVE_UP_SECONDS
    await ask()
    assert is_held(world)


async def test_a_plan_asked_for_again_while_its_job_is_read_stays(world, server, asking):
    server.jobs["train"] = job("train", version="8")
    (plan,) = asking.unconfirmed()
    reading = asyncio.create_task(asking.ask(plan))
    await asyncio.sleep(0)
    world.plan(plan_request("train", workers=8, version="8"))
    await reading
    assert is_held(world)


@pytest.fixture
def unanswered(world, server):
    """A Binding whose answer was lost, of a pod that the API server has."""
    server.add(pod("p"))
    world.ledger.pods.upsert(pod("p"))
    world.reserve(pod("p"), "a")
    world.ledger.end_bind("uid-p", Outcome.UNKNOWN)
    world.now += 5


async def ask_about_binds(world, api):
    asking = UnconfirmedBinds(api, world.ledger)
    for claim in asking.unconfirmed():
        await asking.ask(claim)


@pytest.mark.usefixtures("unanswered")
async def test_an_unanswered_bind_is_settled_by_reading_the_pod(world, server, api):
    server.pods.clear()
    await ask_about_binds(world, api)
    assert world.states() == []


@pytest.mark.usefixtures("unanswered")
async def test_an_unbound_pod_leaves_the_bind_unconfirmed_until_no_write_can_arrive(world, api):
    await ask_about_binds(world, api)
    assert world.states() == ["unanswered"]
    world.now += GIVE_UP_SECONDS
    await ask_about_binds(world, api)
    assert world.states() == []


@pytest.mark.usefixtures("unanswered")
async def test_a_bind_whose_pod_the_api_server_does_not_give_is_held(world, server, api):
    server.pods["p"] = object()
    world.now += GIVE_UP_SECONDS
    await ask_about_binds(world, api)
    assert world.states() == ["unanswered"]


async def test_writes_are_asked_about_again_and_again_until_the_task_is_cancelled(world, api):
    asked = []

    class Sent(UnconfirmedWrites[str]):
        look_seconds = 0.0

        def unconfirmed(self):
            return ["one", "two"]

        async def _outcome(self, write):
            asked.append(write)
            if len(asked) == 4:
                raise asyncio.CancelledError
            raise errors.Unreachable(write)

        def _settle(self, write, outcome):
            raise AssertionError(write, outcome)

        def _name(self, write):
            return write

    with pytest.raises(asyncio.CancelledError):
        await Sent(api, world.ledger).run()
    assert asked == ["one", "two", "one", "two"]
