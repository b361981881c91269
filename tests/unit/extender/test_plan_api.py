# SPDX-License-Identifier: Apache-2.0
"""What a call of the plan API may cost, over real connections."""

import asyncio
import http.client
import io
import threading
import time
import tracemalloc

import aiohttp
import msgspec
import pytest
from extender_builders import plan_request
from listening import listening

from gpupack_crds import names
from gpupack_extender import endpoints
from gpupack_extender.metrics import Metrics
from gpupack_extender.plan_api import LIMIT_BYTES, MAX_VALUES, PlanApi
from gpupack_extender.servers import verbs_server
from gpupack_extender.settings import Serving
from gpupack_httpserver import connections
from gpupack_httpserver.access import Access

PLAN = names.PLAN_ROUTE.format(namespace="team")
HEADERS = {"Authorization": "Bearer operator-token", "Content-Type": "application/json"}
CALLS = 20


class Ready:
    """Decides at any time."""

    def require_to_decide(self):
        pass


@pytest.fixture
async def port(world, api):
    access = Access(api, clock=lambda: world.now)
    plans = PlanApi(
        make_plan=world.plan,
        turns=world.turns,
        access=access,
        readiness=Ready(),
        metrics=Metrics(),
    )
    async with listening(verbs_server(plans.app(), Serving(verbs_port=0))) as number:
        yield number


@pytest.fixture
async def plans(port):
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=HEADERS) as session:
        yield session


def body(pod_spec='{"containers":[{"name":"worker"}]}', **changes):
    request = plan_request("train")
    built = msgspec.json.decode(msgspec.json.encode(request)) | changes
    built["podSpec"] = msgspec.Raw(pod_spec.encode())
    return msgspec.json.encode(built)


def of_empty_lists(size):
    """A body of this size that is decoded into as many lists as there can be."""
    rest = len(body('{"a":[[]]}'))
    return body('{"a":[[]' + ",[]" * ((size - rest) // 3) + "]}")


async def posted(plans, data, path=PLAN, headers=HEADERS):
    data = io.BytesIO(data) if isinstance(data, bytes) else data
    async with plans.post(path, data=data, headers=headers) as response:
        return response.status, await response.json()


def head_alone(port, headers):
    """The answer to a call that says it has a body and sends none of it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.putrequest("POST", PLAN)
    for name, value in ({"Content-Length": str(LIMIT_BYTES)} | headers).items():
        connection.putheader(name, value)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize(
    ("headers", "status"),
    [(HEADERS, 403), (HEADERS | {"Authorization": "Bearer forged"}, 401)],
    ids=["without the right", "unknown"],
)
async def test_an_unauthorized_plan_is_refused_before_the_body_is_read(
    port, server, headers, status
):
    server.allowed.clear()
    assert await asyncio.to_thread(head_alone, port, headers) == status


async def test_twenty_large_bodies_of_a_tenant_without_the_right_are_never_decoded(
    plans, server, monkeypatch
):
    monkeypatch.setattr(endpoints, "decode", lambda *_: pytest.fail("a body was decoded"))
    server.users["tenant-token"] = ("tenant", [names.PLAN_AUDIENCE])
    data, headers = of_empty_lists(LIMIT_BYTES), HEADERS | {"Authorization": "Bearer tenant-token"}
    answers = await asyncio.gather(*(posted(plans, data, headers=headers) for _ in range(CALLS)))
    assert {status for status, _ in answers} <= {403, 429}


async def test_bodies_of_as_many_values_as_are_read_take_little_memory(plans, monkeypatch):
    # A busy machine that traces memory takes longer than a call may.
    monkeypatch.setattr(connections, "CALL_SECONDS", 100.0)
    data = of_empty_lists(3 * MAX_VALUES // 2 - 2000)
    await posted(plans, body())
    tracemalloc.start()
    try:
        answers = await asyncio.gather(*(posted(plans, data) for _ in range(4)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert {status for status, _ in answers} == {200}
    assert peak < 32 << 20


async def test_more_values_than_are_read_are_refused_by_number(plans):
    status, answer = await posted(plans, of_empty_lists(LIMIT_BYTES))
    assert (status, answer["reason"]) == (413, "CallTooLarge")
    assert answer["message"].endswith(f"at most {MAX_VALUES} are read")


async def test_a_template_as_large_as_admission_allows_is_planned_whatever_it_is_of(plans):
    spec = {"containers": [{"name": "worker", "args": ["," * (250 << 10)]}]}
    assert (await posted(plans, body(msgspec.json.encode(spec).decode())))[0] == 200


async def test_one_plan_is_decoded_at_a_time(plans, server, monkeypatch):
    server.users["other-token"] = ("other", [names.PLAN_AUDIENCE])
    server.allowed.add("other")
    decode, lock, overlaps = endpoints.decode, threading.Lock(), []

    def slowly(*args):
        overlaps.append(not lock.acquire(blocking=False))
        time.sleep(0.05)
        lock.release()
        return decode(*args)

    monkeypatch.setattr(endpoints, "decode", slowly)
    monkeypatch.setattr(endpoints, "LARGE_BYTES", 0)
    tokens = [HEADERS, HEADERS | {"Authorization": "Bearer other-token"}] * 2
    await asyncio.gather(*(posted(plans, body(), headers=headers) for headers in tokens))
    assert overlaps == [False] * 4


async def test_a_slow_body_of_one_user_keeps_no_other_user_waiting(plans, server):
    server.users["slow-token"] = ("slow", [names.PLAN_AUDIENCE])
    server.allowed.add("slow")
    halfway, finish = asyncio.Event(), asyncio.Event()

    async def slowly():
        yield body()[:10]
        halfway.set()
        await finish.wait()
        yield body()[10:]

    headers = HEADERS | {"Authorization": "Bearer slow-token"}
    slow = asyncio.create_task(posted(plans, slowly(), headers=headers))
    await halfway.wait()
    assert (await posted(plans, body()))[0] == 200
    finish.set()
    assert (await slow)[0] == 200


async def test_a_right_in_one_namespace_plans_in_no_other(plans, world):
    status, answer = await posted(plans, body(namespace="other"))
    assert (status, answer["reason"]) == (400, "CallInvalid")
    assert answer["message"] == "namespace is 'other', and the path's 'team'"
    assert world.states() == []


@pytest.mark.parametrize("namespace", ["Team", "-", "a" * 64, "%20", "a.b"])
async def test_an_invalid_namespace_is_refused_without_an_access_review(plans, server, namespace):
    path = names.PLAN_ROUTE.format(namespace=namespace)
    assert (await posted(plans, body(), path=path))[0] == 400
    assert server.reviews == 0


async def test_the_pod_spec_is_decoded_only_in_the_parts_that_decide(plans):
    status, _ = await posted(plans, body('{"containers":[{"name":"w","env":{"any":["thing"]}}]}'))
    assert status == 200
