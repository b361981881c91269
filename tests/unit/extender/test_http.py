# SPDX-License-Identifier: Apache-2.0
"""The servers as their callers see them, over real connections."""

import asyncio
import contextlib
import io
import json
import types

import aiohttp
import msgspec
import pytest
from extender_builders import plan_request, pod

from gpupack_extender.access import Access
from gpupack_extender.binding import Binder
from gpupack_extender.leadership import Leadership
from gpupack_extender.metrics import LedgerCollector, Metrics
from gpupack_extender.plan_api import PlanApi
from gpupack_extender.readiness import Readiness
from gpupack_extender.servers import verbs_server
from gpupack_extender.settings import Serving
from gpupack_extender.takeover import Takeover
from gpupack_extender.verbs import LIMIT_BYTES, Verbs
from gpupack_kube import objects

TOKEN = {"Authorization": "Bearer operator-token"}
PLAN = "/v1alpha1/plan"
VERBS = ["filter", "prioritize", "bind"]


class FakeWatch:
    """A watch of any age."""

    def __init__(self):
        self.synced = asyncio.Event()
        self.synced.set()
        self.age = 1.0
        self.unreadable = 0

    def age_seconds(self):
        return self.age


@contextlib.asynccontextmanager
async def listening(app):
    server = verbs_server(app, Serving(verbs_port=0))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session
    server.should_exit = True
    await task


@pytest.fixture
async def parts(world, api):
    leadership = Leadership(pod_name="scheduler", clock=lambda: world.now)
    spec = objects.LeaseSpec(holder_identity="scheduler_1", lease_duration_seconds=3600)
    leadership.upsert(objects.Lease(spec=spec))
    world.now += 60
    watch = FakeWatch()
    readiness = Readiness(
        watches={"pods": watch},
        leadership=leadership,
        takeover=Takeover([], clock=lambda: world.now),
        fresh_seconds=90,
        settle_seconds=10,
    )
    metrics = Metrics()
    metrics.registry.register(LedgerCollector(world.ledger, {"pods": watch}))
    verbs = Verbs(
        filter_pod=world.filter_pod,
        prioritize_pod=world.prioritize_pod,
        binder=Binder(api, world.ledger, world.reserve, leads=lambda: world.leads),
        readiness=readiness,
        metrics=metrics,
    )
    access = Access(api, clock=lambda: world.now)
    plans = PlanApi(make_plan=world.plan, access=access, readiness=readiness, metrics=metrics)
    return types.SimpleNamespace(verbs=verbs, plans=plans, watch=watch, leadership=leadership)


@pytest.fixture
async def verbs(parts):
    async with listening(parts.verbs.app()) as session:
        yield session


@pytest.fixture
async def plans(parts):
    async with listening(parts.plans.app()) as session:
        yield session


def filter_body(**changes):
    asking = msgspec.to_builtins(pod("p"))
    return {"Pod": asking, "Nodes": None, "NodeNames": ["a", "b"], **changes}


async def test_filter_answers_in_gos_spelling(verbs):
    async with verbs.post("/scheduler/filter", json=filter_body()) as response:
        answer = await response.json()
    assert set(answer) == {"NodeNames"}
    assert len(answer["NodeNames"]) == 1


async def test_prioritize_answers_a_bare_array(verbs):
    async with verbs.post("/scheduler/prioritize", json=filter_body()) as response:
        answer = await response.json()
    assert [set(each) for each in answer] == [{"Host", "Score"}] * 2


async def test_filter_then_bind(verbs, world, server):
    server.add(pod("p"))
    async with verbs.post("/scheduler/filter", json=filter_body()) as response:
        (node,) = (await response.json())["NodeNames"]
    call = {"PodName": "p", "PodNamespace": "team", "PodUID": "uid-p", "Node": node}
    async with verbs.post("/scheduler/bind", json=call) as response:
        assert await response.json() == {"Error": ""}
    assert world.states() == ["landed"]


async def test_an_unservable_pod_is_an_error_that_is_retried(verbs):
    body = filter_body(Pod=msgspec.to_builtins(pod("p", gpus=0)))
    async with verbs.post("/scheduler/filter", json=body) as response:
        assert "exactly one container" in (await response.json())["Error"]


async def test_nothing_is_decided_on_a_stale_watch(verbs, parts, world):
    parts.watch.age = 91.0
    async with verbs.post("/scheduler/filter", json=filter_body()) as response:
        assert (await response.json())["Error"].endswith("WatchStale: pods")
    assert world.states() == []


MALFORMED = {
    "empty": b"",
    "no object": b"3",
    "truncated": b'{"Pod": {"metadata": {',
    "wrong types": b'{"Pod": 3, "NodeNames": "a", "PodName": [], "Node": {}}',
    "not UTF-8": b'{"Pod": {"metadata": {"name": "\xff\xfe"}}, "PodName": "\xff"}',
    "deep": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "path": b'{"PodName": "../../x", "PodNamespace": "n", "PodUID": "u", "Node": "a"}',
    "null names": b'{"Pod": {}, "NodeNames": null, "PodName": null}',
}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_malformed_call_changes_nothing(verbs, world, verb):
    answers = {}
    for name, body in MALFORMED.items():
        async with verbs.post(f"/scheduler/{verb}", data=body) as response:
            answers[name] = (response.status, (await response.json())["reason"])
    assert answers == dict.fromkeys(MALFORMED, (400, "CallInvalid"))
    assert world.states() == []


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("stream", [False, True], ids=["declared", "chunked"])
async def test_a_body_of_10_mb_is_refused(verbs, verb, stream):
    async def chunks():
        for _ in range(11):
            yield b" " * (LIMIT_BYTES // 8)

    data = chunks() if stream else io.BytesIO(b" " * (10 << 20))
    async with verbs.post(f"/scheduler/{verb}", data=data) as response:
        assert response.status == 413


async def test_other_methods_and_paths_are_refused(verbs):
    async with verbs.get("/scheduler/filter") as response:
        assert response.status == 405
    async with verbs.post("/scheduler/preempt") as response:
        assert response.status == 404


async def test_of_two_equal_keys_the_last_counts_as_for_go(verbs):
    body = json.dumps(filter_body())[:-1] + ', "NodeNames": ["b"]}'
    async with verbs.post("/scheduler/filter", data=body) as response:
        assert (await response.json())["NodeNames"] == ["b"]


async def ask(plans, headers=TOKEN, **job):
    body = msgspec.json.encode(plan_request("train", **job))
    async with plans.post(PLAN, data=body, headers=headers) as response:
        return response.status, await response.json()


async def test_a_gang_gets_all_its_places(plans):
    status, answer = await ask(plans, workers=2, gpus=4)
    assert status == 200
    assert {each["node"] for each in answer["placement"]} == {"a", "b"}


async def test_a_gang_that_does_not_fit_is_told_why(plans):
    status, answer = await ask(plans, workers=3, gpus=4)
    assert (status, answer["never"], answer["counts"]) == (409, True, {"TooFewFreeGpus": 2})


async def test_without_a_token_there_is_no_plan(plans, world):
    status, answer = await ask(plans, headers={})
    assert (status, answer["message"]) == (401, "send a bearer token")
    assert world.states() == []


async def test_a_token_for_another_audience_is_refused(plans, server):
    server.users["operator-token"] = ("operator", ["https://kubernetes.default.svc"])
    assert (await ask(plans))[0] == 401


async def test_a_caller_without_the_right_is_refused(plans, server):
    server.allowed.clear()
    status, answer = await ask(plans)
    assert status == 403
    assert answer["message"] == "operator may not create gpupack.dev gpujobs plan team"


async def test_reviews_are_kept_for_a_while_and_then_asked_anew(plans, server, world):
    await ask(plans)
    await ask(plans)
    assert server.reviews == 2
    world.now += 11
    await ask(plans)
    assert server.reviews == 4


async def test_who_is_not_the_leader_makes_no_plan(plans, parts):
    parts.leadership.remove(objects.Lease())
    status, answer = await ask(plans)
    assert (status, answer["reason"]) == (503, "NotReady")
    async with plans.get("/readyz") as response:
        assert (response.status, await response.text()) == (503, "NotLeader")


async def test_a_malformed_plan_request_changes_nothing(plans, world):
    async with plans.post(PLAN, data=b'{"namespace": 3}', headers=TOKEN) as response:
        assert response.status == 400
    assert world.states() == []


async def test_an_unreadable_pod_spec_is_a_bad_request(plans):
    status, answer = await ask(plans, pod_spec={"containers": 3})
    assert (status, answer["reason"]) == (400, "AskInvalid")


async def test_health_is_for_anyone_and_metrics_are_not(plans):
    async with plans.get("/healthz") as response:
        assert response.status == 200
    async with plans.get("/metrics") as response:
        assert response.status == 401


async def test_metrics_tell_claims_and_devices(plans):
    await ask(plans, workers=3)
    async with plans.get("/metrics", headers=TOKEN) as response:
        text = await response.text()
    assert 'gpupack_extender_claims{state="planned"} 3.0' in text
    assert 'gpupack_extender_devices{state="free"} 5.0' in text
    assert 'gpupack_extender_unreadable_objects_total{kind="pods"} 0.0' in text
    assert 'gpupack_extender_calls_total{outcome="placed",verb="plan"} 1.0' in text
