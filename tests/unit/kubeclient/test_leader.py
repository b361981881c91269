# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest
from aiohttp import web

from gpupack_kubeclient.errors import LeaseLost
from gpupack_kubeclient.leader import Election


class LeaseServer:
    """One Lease with resourceVersions; `down` makes every call fail."""

    def __init__(self):
        self.lease = None
        self.version = 0
        self.down = False

    @property
    def holder(self):
        return self.lease["spec"]["holderIdentity"]

    async def answer(self, request):
        if self.down:
            return web.json_response({}, status=500)
        if request.method == "GET":
            return self._found() if self.lease else web.json_response({}, status=404)
        body = await request.json()
        wanted = body["metadata"].get("resourceVersion")
        if self.lease and wanted != str(self.version):
            return web.json_response({"reason": "Conflict"}, status=409)
        self.version += 1
        self.lease = body
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return self._found()

    def _found(self):
        return web.json_response(self.lease)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def server():
    return LeaseServer()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def candidate(serve, server, clock):
    async with serve(server.answer) as api:

        def named(holder, seconds=10):
            return Election(
                api, "lock", namespace="n", holder=holder, duration_seconds=seconds, clock=clock
            )

        yield named


async def test_the_first_candidate_creates_the_lease(candidate, server):
    await candidate("a").acquire()
    assert server.holder == "a"


async def test_a_held_lease_is_taken_only_after_it_has_not_changed_for_its_duration(
    candidate, server, clock
):
    await candidate("a").acquire()
    other = candidate("b")
    assert not await other.try_to_lead()
    clock.now += 9
    assert not await other.try_to_lead()
    clock.now += 2
    assert await other.try_to_lead()
    assert server.holder == "b"


async def test_a_lease_that_is_renewed_is_not_taken(candidate, server, clock):
    holder, other = candidate("a"), candidate("b")
    await holder.acquire()
    for _ in range(5):
        clock.now += 6
        assert await holder.try_to_lead()
        assert not await other.try_to_lead()
    assert server.holder == "a"


async def test_a_restarted_container_of_the_same_pod_gets_its_lease_back_at_once(candidate):
    await candidate("a").acquire()
    assert await candidate("a").try_to_lead()


async def test_a_released_lease_is_taken_at_once(candidate, server):
    holder = candidate("a")
    await holder.acquire()
    await holder.release()
    assert await candidate("b").try_to_lead()
    assert server.holder == "b"


async def test_a_lease_of_another_is_not_released(candidate, server):
    await candidate("a").acquire()
    await candidate("b").release()
    assert server.holder == "a"


async def test_a_lease_that_cannot_be_renewed_is_lost_before_it_expires(candidate, server, clock):
    holder = candidate("a", seconds=1)
    await holder.acquire()
    server.down = True
    clock.now += 0.9
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(holder.hold(), 30)


async def test_a_short_outage_loses_nothing(candidate, server, clock):
    holder = candidate("a")
    await holder.acquire()
    server.down = True
    clock.now += 5
    assert not await holder.try_to_lead()
    assert holder.is_still_leader()
