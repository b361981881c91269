# SPDX-License-Identifier: Apache-2.0
"""Workers of a gang are bound together, or none of them is."""

import asyncio
import contextlib

import pytest
from extender_builders import job, pod

from gpupack_extender import gathering
from gpupack_extender.binding import Binder
from gpupack_extender.errors import GangIncomplete
from gpupack_extender.wire import BindingArgs
from gpupack_scheduler.errors import BindRefused

PLACES = [("a", [0]), ("a", [1]), ("b", [0])]


@pytest.fixture
def binder(world, api, monkeypatch):
    monkeypatch.setattr(gathering, "LOOK_SECONDS", 0.01)
    return Binder(api, world.ledger, world.reserve_ask, leads=lambda: world.leads)


def admitted(world, placed=PLACES, **spec):
    shown = {"attempt": 1, "phase": "Admitted", "workers": len(placed)} | spec
    world.ledger.jobs.upsert(job("train", placed=placed, **shown))


def call(index, node):
    name = f"w{index}"
    return BindingArgs(pod_name=name, pod_namespace="team", pod_uid=f"uid-{name}", node=node)


@contextlib.asynccontextmanager
async def calls(binder, world, server, *indices, gpus=1):
    """Binds that kube-scheduler has begun, of workers with these indices; none is answered yet."""
    begun = []
    for index in indices:
        worker = pod(f"w{index}", gpus=gpus, worker=("train", 1, index))
        server.add(worker)
        world.ledger.pods.upsert(worker)
        begun.append(asyncio.create_task(binder.bind(call(index, PLACES[index][0]))))
    await asyncio.sleep(0.05)
    yield begun
    for each in begun:
        each.cancel()
    await asyncio.wait(begun)


def bound(server):
    return sorted(written["metadata"]["name"] for written in server.bindings)


async def test_no_worker_is_bound_before_all_have_come(binder, world, server):
    admitted(world)
    async with calls(binder, world, server, 0, 1) as first:
        assert (bound(server), world.states()[:2]) == ([], ["binding", "binding"])
        async with calls(binder, world, server, 2) as last:
            await asyncio.gather(*first, *last)
    assert bound(server) == ["w0", "w1", "w2"]
    assert world.ledger.claims.served(world.attempt("train"))


async def test_workers_that_share_a_pod_come_with_it(binder, world, server):
    admitted(world, shares_pods=True)
    async with calls(binder, world, server, 0, gpus=2) as first:
        assert (bound(server), world.states()[:1]) == ([], ["binding"])
        async with calls(binder, world, server, 2) as last:
            await asyncio.gather(*first, *last)
    assert bound(server) == ["w0", "w2"]


async def test_a_gang_in_one_pod_waits_for_no_other(binder, world, server):
    admitted(world, PLACES[:2], shares_pods=True)
    async with calls(binder, world, server, 0, gpus=2) as only:
        await asyncio.gather(*only)
    assert bound(server) == ["w0"]


async def test_an_attempt_that_is_given_up_binds_no_worker(binder, world, server):
    admitted(world)
    async with calls(binder, world, server, 0, 1) as waiting:
        world.ledger.jobs.upsert(job("train", attempt=1, workers=3))
        for each in waiting:
            with pytest.raises(GangIncomplete, match="has given its places back"):
                await each
    assert (bound(server), world.states()) == ([], [])


async def test_a_pod_that_is_deleted_is_not_waited_for_and_its_replacement_is(
    binder, world, server
):
    admitted(world)
    async with calls(binder, world, server, 0, 1) as (stays, leaves):
        world.ledger.pods.remove(pod("w1", worker=("train", 1, 1)))
        with pytest.raises(GangIncomplete, match="pod w1 is gone"):
            await leaves
        async with calls(binder, world, server, 2):
            assert bound(server) == []
            async with calls(binder, world, server, 1) as last:
                await asyncio.gather(stays, *last)
    assert bound(server) == ["w0", "w1", "w2"]


async def test_a_pod_that_a_new_list_does_not_show_is_not_waited_for(binder, world, server):
    admitted(world)
    async with calls(binder, world, server, 0, 1) as (_, leaves):
        world.ledger.pods.replace([pod("w0", worker=("train", 1, 0))])
        with pytest.raises(GangIncomplete, match="pod w1 is gone"):
            await leaves
    assert bound(server) == []


async def test_a_worker_whose_scheduler_has_gone_away_is_not_bound_later(
    binder, world, server, monkeypatch
):
    monkeypatch.setattr(gathering, "LOOK_SECONDS", 0.2)
    admitted(world)
    async with calls(binder, world, server, 0):
        pass
    async with calls(binder, world, server, 1, 2):
        assert bound(server) == []
        async with calls(binder, world, server, 0) as again:
            await asyncio.gather(*again)


@pytest.fixture
async def behind_a_write(binder, monkeypatch):
    """Binds that wait for their turn to be written, which the test gives them."""
    monkeypatch.setattr(binder, "_writes", asyncio.Semaphore(0))
    return binder._writes


async def test_a_gang_that_is_given_up_during_other_bindings_is_not_bound(
    binder, world, server, behind_a_write
):
    admitted(world)
    async with calls(binder, world, server, 0, 1, 2) as waiting:
        world.ledger.jobs.upsert(job("train", attempt=1, workers=3))
        for each in waiting:
            behind_a_write.release()
            with pytest.raises(GangIncomplete, match="has given its places back"):
                await each
    assert (bound(server), world.states()) == ([], [])


async def test_a_caller_that_disconnects_during_other_bindings_gets_no_binding(
    binder, world, server, behind_a_write
):
    admitted(world)
    async with calls(binder, world, server, 0, 1, 2):
        pass
    for _ in PLACES:
        behind_a_write.release()
    async with asyncio.timeout(30):
        while binder._running:
            await asyncio.sleep(0.01)
    assert bound(server) == []


async def test_a_pod_that_goes_while_other_bindings_are_written_is_not_bound(
    binder, world, server, behind_a_write
):
    lone = pod("lone")
    server.add(lone)
    world.ledger.pods.upsert(lone)
    asked = BindingArgs(pod_name="lone", pod_namespace="team", pod_uid="uid-lone", node="a")
    binding = asyncio.create_task(binder.bind(asked))
    await asyncio.sleep(0.05)
    world.ledger.pods.remove(lone)
    behind_a_write.release()
    with pytest.raises(BindRefused):
        await binding
    assert (bound(server), world.states()) == ([], [])


async def test_bound_workers_count_after_a_restart(binder, world, server):
    admitted(world)
    for index, (node, devices) in enumerate(PLACES[:2]):
        claim = world.ledger.plan_of(world.attempt("train"))[index]
        assert (claim.placement.node, len(devices)) == (node, 1)
        there = pod(f"w{index}", on=node, worker=("train", 1, index))
        world.ledger.pods.upsert(there)
    async with calls(binder, world, server, 2) as last:
        await asyncio.gather(*last)
    assert bound(server) == ["w2"]


async def test_a_gang_that_has_run_does_not_wait_for_those_that_ended(binder, world, server):
    admitted(world, phase="Running")
    async with calls(binder, world, server, 1) as replacement:
        await asyncio.gather(*replacement)
    assert bound(server) == ["w1"]


async def test_a_gang_that_has_begun_does_not_wait_again(binder, world, server):
    admitted(world)
    async with calls(binder, world, server, 0, 1, 2) as all_:
        await asyncio.gather(*all_)
    for index in range(3):
        world.ledger.pods.remove(pod(f"w{index}", worker=("train", 1, index)))
    server.bindings.clear()
    async with calls(binder, world, server, 1) as replacement:
        await asyncio.gather(*replacement)
    assert bound(server) == ["w1"]


async def test_extra_workers_neither_wait_nor_delay_the_gang(binder, world, server):
    admitted(world, minWorkers=2)
    async with calls(binder, world, server, 2) as extra:
        await asyncio.gather(*extra)
    async with calls(binder, world, server, 0):
        assert bound(server) == ["w2"]
        async with calls(binder, world, server, 1) as last:
            await asyncio.gather(*last)
    assert bound(server) == ["w0", "w1", "w2"]


async def test_a_process_that_ends_answers_those_that_wait(binder, world, server):
    admitted(world)
    async with calls(binder, world, server, 0) as (waiting,):
        binder.gathering.close()
        with pytest.raises(GangIncomplete, match="not all of its workers came"):
            await waiting
    assert world.states() == ["written", "written", "written"]
