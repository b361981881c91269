# SPDX-License-Identifier: Apache-2.0
"""Whose handshake is next."""

import asyncio

import pytest
from extender_builders import plan_request

from gpupack_httpserver import handshakes
from gpupack_httpserver.access import Access, Caller
from gpupack_httpserver.errors import Denied
from gpupack_httpserver.handshakes import Handshakes


class Turns:
    """Handshakes with a stand-in clock, and the addresses that had a turn."""

    def __init__(self, **bounds):
        self.now, self.had, self.tasks = 0.0, [], []
        self.handshakes = Handshakes(clock=lambda: self.now, **bounds)

    async def want(self, *peers):
        self.tasks += [asyncio.create_task(self._want(peer)) for peer in peers]
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def after(self, seconds):
        """Advance the clock; return the addresses that had a turn."""
        self.had.clear()
        self.now += seconds
        self.handshakes._give()
        for _ in range(5):
            await asyncio.sleep(0)
        return self.had

    async def _want(self, peer):
        await self.handshakes.turn(peer)
        self.had.append(peer)


@pytest.fixture
async def turns():
    made = []

    def build(**bounds):
        made.append(Turns(**{"burst": 1000, "peer_burst": 1000} | bounds))
        return made[-1]

    yield build
    for each in made:
        for task in each.tasks:
            task.cancel()
        await asyncio.gather(*each.tasks, return_exceptions=True)
        if each.handshakes._timer:
            each.handshakes._timer.cancel()


async def test_an_address_has_a_burst_of_handshakes_and_then_a_lower_rate(turns):
    of = turns(peer_burst=2, peer_per_second=10)
    await of.want(*"aaaaa")
    assert of.had == ["a", "a"]
    assert await of.after(0.11) == ["a"]
    assert await of.after(0.21) == ["a", "a"]


async def test_addresses_take_turns_however_many_connections_each_has(turns):
    of = turns(burst=1, per_second=1)
    await of.want(*"aaaaaaaab")
    assert of.had == ["a"]
    assert {*(await of.after(1)), *(await of.after(1))} == {"a", "b"}


async def test_a_flood_of_unknown_addresses_does_not_delay_a_known_one(turns):
    of = turns(burst=1, per_second=1)
    of.handshakes.welcome("operator")
    await of.want(*(f"10.0.0.{number}" for number in range(200)))
    await of.want("operator")
    assert "operator" in [*(await of.after(1)), *(await of.after(1))]


async def test_known_addresses_leave_handshakes_to_new_ones(turns):
    of = turns(burst=1, per_second=1)
    of.handshakes.welcome("busy")
    await of.want(*["busy"] * 20, "new")
    assert "new" in [*(await of.after(1)), *(await of.after(1))]


async def test_a_client_that_disconnects_leaves_no_state(turns):
    of = turns(burst=1, per_second=1)
    for _ in range(20):
        await of.want("a", "b")
        for task in of.tasks:
            task.cancel()
        await asyncio.gather(*of.tasks, return_exceptions=True)
    assert not any(of.handshakes._lanes)


async def test_a_handshake_without_a_turn_in_time_times_out(turns, monkeypatch):
    monkeypatch.setattr(handshakes, "WAIT_SECONDS", 0.01)
    of = turns(burst=1, per_second=1)
    await of.want("a", "a")
    with pytest.raises(TimeoutError):
        await of.tasks[1]


async def test_pending_handshakes_proceed_without_new_calls():
    of = Handshakes(burst=1, per_second=50)
    async with asyncio.timeout(30):
        await asyncio.gather(*(of.turn("a") for _ in range(5)))


async def test_an_address_is_welcome_once_it_made_an_allowed_call(api, server):
    welcome = []
    access = Access(api, clock=lambda: 0.0, on_allowed=welcome.append)
    namespace = plan_request("train").namespace
    await access.may_plan(Caller("Bearer operator-token", "10.0.0.1"), namespace=namespace)
    server.allowed.clear()
    server.users["tenant-token"] = ("tenant", ["gpupack-extender"])
    with pytest.raises(Denied):
        await access.may_plan(Caller("Bearer tenant-token", "10.0.0.2"), namespace=namespace)
    assert welcome == ["10.0.0.1"]
