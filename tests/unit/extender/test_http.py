# SPDX-License-Identifier: Apache-2.0
"""The servers as their callers see them, over real connections."""

import asyncio
import contextlib
import dataclasses
import io
import json
import types

import aiohttp
import msgspec
import pytest
from extender_builders import job, plan_request, pod
from listening import listening

from gpupack_crds import names
from gpupack_extender import endpoints, gathering
from gpupack_extender.binding import Binder
from gpupack_extender.health import Health
from gpupack_extender.leadership import Leadership
from gpupack_extender.metrics import LedgerCollector, Metrics
from gpupack_extender.plan_api import PlanApi
from gpupack_extender.readiness import Readiness
from gpupack_extender.servers import verbs_server
from gpupack_extender.settings import Serving
from gpupack_extender.takeover import Takeover
from gpupack_extender.verbs import Verbs
from gpupack_httpserver.access import KEPT_ANSWERS, Access
from gpupack_kubeclient import objects
from gpupack_kubeclient.metrics import UnreadableObjects
from gpupack_placement import dump, load, load_forecast
from gpupack_scheduler.decisions import Decisions, Mode

JSON = {"Content-Type": "application/json"}
TOKEN = {"Authorization": "Bearer operator-token"}
PLAN = names.PLAN_ROUTE.format(namespace="team")


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
async def calling(app):
    async with (
        listening(verbs_server(app, Serving(verbs_port=0))) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=JSON) as session,
    ):
        yield session


@pytest.fixture
async def parts(world, api):
    leadership = Leadership(pod_name="scheduler", clock=lambda: world.now)
    spec = objects.LeaseSpec(holder_identity="scheduler_1", lease_duration_seconds=3600)
    leadership.upsert(objects.Lease(spec=spec))
    world.now += 60
    watch = FakeWatch()
    takeover = Takeover(
        [],
        awaits_plans=lambda: False,
        clock=lambda: world.now,
        settle_seconds=10,
        later=lambda _, call: call(),
    )
    takeover.begin()
    readiness = Readiness(
        watches={"pods": watch},
        leadership=leadership,
        takeover=takeover,
        stale_after_seconds=90,
    )
    metrics = Metrics()
    metrics.registry.register(LedgerCollector(world.ledger, {"pods": watch}))
    metrics.registry.register(UnreadableObjects({"pods": watch}))
    verbs = Verbs(
        filter_pod=world.filter_pod,
        prioritize_pod=world.prioritize_pod,
        binder=Binder(api, world.ledger, world.reserve_ask, leads=lambda: world.leads),
        readiness=readiness,
        metrics=metrics,
    )
    access = Access(api, clock=lambda: world.now)
    plans = PlanApi(
        make_plan=world.plan,
        turns=world.turns,
        access=access,
        readiness=readiness,
        metrics=metrics,
    )
    return types.SimpleNamespace(verbs=verbs, plans=plans, watch=watch, leadership=leadership)


@pytest.fixture
async def verbs(parts):
    async with calling(parts.verbs.app()) as session:
        yield session


@pytest.fixture
async def health(parts):
    async with calling(Health(parts.plans.readiness).app()) as session:
        yield session


@pytest.fixture
async def plans(parts):
    async with calling(parts.plans.app()) as session:
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


@pytest.fixture
def gang(world, server, monkeypatch):
    """A gang of two whose workers are to be bound; the binder looks for waiting workers often."""
    monkeypatch.setattr(endpoints, "CALLER_SECONDS", 0.05)
    monkeypatch.setattr(gathering, "LOOK_SECONDS", 0.05)
    placed = [("a", [0]), ("b", [0])]
    world.ledger.jobs.upsert(job("train", attempt=1, phase="Admitted", placed=placed, workers=2))
    for index in range(2):
        worker = pod(f"w{index}", worker=("train", 1, index))
        server.add(worker)
        world.ledger.pods.upsert(worker)


async def bind_worker(verbs, index, node, seconds=30.0):
    call = {"PodName": f"w{index}", "PodNamespace": "team", "PodUID": f"uid-w{index}", "Node": node}
    timeout = aiohttp.ClientTimeout(seconds)
    async with verbs.post("/scheduler/bind", json=call, timeout=timeout) as response:
        return await response.json()


@pytest.mark.usefixtures("gang")
async def test_a_worker_that_waits_for_its_gang_is_answered_when_all_have_come(verbs, server):
    first = asyncio.create_task(bind_worker(verbs, 0, "a"))
    await asyncio.sleep(0.3)
    assert not first.done()
    assert not server.bindings
    assert [await bind_worker(verbs, 1, "b"), await first] == [{"Error": ""}] * 2


@pytest.mark.usefixtures("gang")
async def test_a_worker_of_which_kube_scheduler_has_gone_away_waits_no_longer(verbs, world, server):
    with pytest.raises(TimeoutError):
        await bind_worker(verbs, 0, "a", seconds=0.3)
    async with asyncio.timeout(30):
        while "binding" in world.states():
            await asyncio.sleep(0.05)
    assert not server.bindings


async def test_filter_rejects_a_pod_with_a_wrong_request_on_every_node(verbs):
    body = filter_body(Pod=msgspec.to_builtins(pod("p", gpus=0)))
    async with verbs.post("/scheduler/filter", json=body) as response:
        refused = (await response.json())["FailedAndUnresolvableNodes"]
    assert all("at least one container" in text for text in refused.values())


async def test_no_decision_is_made_on_a_stale_watch(verbs, parts, world):
    parts.watch.age = 91.0
    async with verbs.post("/scheduler/filter", json=filter_body()) as response:
        assert (await response.json())["Error"].endswith("(WatchStale: pods)")
    assert world.states() == []


def bind_body(**changes):
    return {"PodName": "p", "PodNamespace": "team", "PodUID": "uid-p", "Node": "a", **changes}


VALID = {
    "/scheduler/filter": filter_body(),
    "/scheduler/prioritize": filter_body(),
    "/scheduler/bind": bind_body(),
    PLAN: msgspec.json.decode(msgspec.json.encode(plan_request("train"))),
}


def malformed(path):
    """Bodies that each differ from a valid one in one way."""
    valid = json.dumps(VALID[path]).encode()
    key = next(iter(VALID[path]))
    first = f'"{key}": '.encode()
    escaped = f"\\u{ord(key[0]):04x}{key[1:]}"
    deep = b"[" * 100_000 + b"]" * 100_000
    return {
        "empty": b"",
        "only space": b"  ",
        "no object": b"3",
        "null": b"null",
        "array": b"[" + valid + b"]",
        "two bodies": valid + valid,
        "garbage behind": valid + b" x",
        "truncated": valid[:-1],
        "truncated in a string": valid[: valid.index(b'"') + 3],
        "wrong types": json.dumps(dict.fromkeys(VALID[path], 3)).encode(),
        "nulls": json.dumps(dict.fromkeys(VALID[path])).encode(),
        "a key is missing": json.dumps({k: v for k, v in VALID[path].items() if k != key}).encode(),
        "a key twice": valid[:-1] + b", " + valid[1:],
        "a key twice, once escaped": valid[:-1] + f', "{escaped}": 1}}'.encode(),
        "a key in other capitals": valid[:-1] + f', "{key.swapcase()}": 1}}'.encode(),
        "an unknown key's key twice": valid[:-1] + b', "X": [{"a": {"b": 1, "b": 1}}]}',
        "deep in an unknown key": valid[:-1] + b', "X": ' + deep + b"}",
        "deep": valid.replace(first, first + deep + b', "X": '),
        "not UTF-8": valid.replace(first, first + b'"\xff", "X": '),
        "UTF-16": json.dumps(VALID[path]).encode("utf-16"),
        "byte order mark": b"\xef\xbb\xbf" + valid,
        "lone surrogate": valid.replace(first, first + b'"\\ud800", "X": '),
        "NaN": valid.replace(first, first + b'NaN, "X": '),
        "Infinity in an unknown key": valid[:-1] + b', "X": -Infinity}',
        "huge number": valid.replace(first, first + b'1e999, "X": '),
        "many digits": valid.replace(first, first + b"9" * 5000 + b', "X": '),
        "comment": b"/* */" + valid,
        "form": b"PodName=p&Node=a",
    }


@pytest.fixture
async def both(parts):
    """The two servers' applications behind one address."""
    routes = [*parts.verbs.app().routes, *parts.plans.app().routes]
    async with calling(endpoints.application(routes)) as session:
        yield session


async def answer_of(response):
    assert response.content_type == "application/json"
    said = await response.json()
    assert set(said) == {"reason", "message"}
    return response.status, said["reason"], said["message"]


@pytest.mark.parametrize("path", VALID)
async def test_a_malformed_call_is_rejected_and_changes_nothing(both, world, server, path):
    server.add(pod("p"))
    answers = {}
    for name, body in malformed(path).items():
        async with both.post(path, data=body, headers=TOKEN) as response:
            answers[name] = (await answer_of(response))[:2]
    assert answers == dict.fromkeys(malformed(path), (400, "CallInvalid"))
    assert (world.states(), server.bindings) == ([], [])


WRONG_FIELDS = [
    ("/scheduler/filter", filter_body(Pod={})),
    ("/scheduler/filter", filter_body(Pod={"metadata": {"name": "p", "namespace": "team"}})),
    ("/scheduler/filter", filter_body(NodeNames=None)),
    ("/scheduler/filter", filter_body(NodeNames=["a"] * 20_001)),
    ("/scheduler/prioritize", filter_body(NodeNames=[["a"]])),
    ("/scheduler/bind", bind_body(PodName="../../x")),
    ("/scheduler/bind", bind_body(PodNamespace="team/pods/q")),
    ("/scheduler/bind", bind_body(PodUID="")),
    ("/scheduler/bind", bind_body(PodUID="u" * 129)),
    ("/scheduler/bind", bind_body(Node="A node")),
    (PLAN, {**VALID[PLAN], "attempt": 0}),
    (PLAN, {**VALID[PLAN], "attempt": 1.5}),
    (PLAN, {**VALID[PLAN], "other": 1}),
    (PLAN, {**VALID[PLAN], "spec": {"workers": 10**30}}),
]


async def test_a_field_that_cannot_be_is_named(both, world):
    for path, body in WRONG_FIELDS:
        async with both.post(path, json=body, headers=TOKEN) as response:
            status, reason, message = await answer_of(response)
        assert (status, reason) == (400, "CallInvalid")
        assert "$" in message or "unknown field" in message or "Pod.metadata" in message
    assert world.states() == []


async def test_the_key_that_stands_twice_is_named(verbs):
    body = json.dumps(filter_body()).replace('"name": "p"', '"name": "p", "name": "q"', 1)
    async with verbs.post("/scheduler/filter", data=body) as response:
        assert (await answer_of(response))[2].endswith("key 'name' stands twice in one object")


async def test_labels_may_differ_by_case_alone(verbs):
    asking = msgspec.to_builtins(pod("p", labels={"app": "a", "App": "b"}))
    async with verbs.post("/scheduler/filter", json=filter_body(Pod=asking)) as response:
        assert len((await response.json())["NodeNames"]) == 1


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("gpus", ["9223372036854775807", 1 << 31, 3_000_000])
async def test_more_gpus_than_can_be_counted_fit_nowhere(world, parts, mode, gpus):
    filter_pod = dataclasses.replace(world.filter_pod, decisions=Decisions(mode=mode))
    verbs_in_mode = dataclasses.replace(parts.verbs, filter_pod=filter_pod)
    body = filter_body(Pod=msgspec.to_builtins(pod("p", gpus=gpus)))
    async with calling(verbs_in_mode.app()) as session:
        async with session.post("/scheduler/filter", json=body) as response:
            assert set((await response.json())["FailedAndUnresolvableNodes"]) == {"a", "b"}
        async with session.post("/scheduler/prioritize", json=body) as response:
            assert {each["Score"] for each in await response.json()} == {0}


async def test_metrics_exclude_expired_assumptions(verbs, plans, world):
    async with verbs.post("/scheduler/filter", json=filter_body()) as response:
        assert len((await response.json())["NodeNames"]) == 1
    world.now += 31
    async with plans.get("/metrics", headers=TOKEN) as response:
        assert 'gpupack_extender_claims{state="assumed"} 0.0' in await response.text()


async def test_unknown_nodes_are_refused_like_any_other_node(verbs):
    body = filter_body(NodeNames=["nowhere"])
    async with verbs.post("/scheduler/filter", json=body) as response:
        answer = await response.json()
    assert response.status == 200
    assert set(answer["FailedAndUnresolvableNodes"]) == {"nowhere"}


async def test_binding_to_an_unknown_node_is_refused(verbs, server, world):
    server.add(pod("p"))
    async with verbs.post("/scheduler/bind", json=bind_body(Node="nowhere")) as response:
        assert (await response.json())["Error"]
    assert (server.bindings, world.states()) == ([], [])


@pytest.mark.parametrize("path", VALID)
@pytest.mark.parametrize("stream", [False, True], ids=["declared", "chunked"])
async def test_a_body_of_10_mb_is_refused(both, path, stream):
    async def chunks():
        for _ in range(10):
            yield b" " * (1 << 20)

    data = chunks() if stream else io.BytesIO(b" " * (10 << 20))
    async with both.post(path, data=data, headers=JSON | TOKEN) as response:
        assert (await answer_of(response))[:2] == (413, "CallTooLarge")


async def test_a_large_pod_is_refused_before_it_is_unpacked(verbs):
    body = json.dumps(filter_body(X=[[]] * (1 << 20))).encode()
    async with verbs.post("/scheduler/filter", data=io.BytesIO(body)) as response:
        assert (await answer_of(response))[0] == 413


def sent_by_go(letters):
    """A filter call of a pod whose only argument is so many `<`, as kube-scheduler writes it."""
    asking = msgspec.to_builtins(pod("p"))
    asking["spec"]["containers"][0]["args"] = ["<" * letters]
    body = json.dumps(filter_body(Pod=asking), separators=(",", ":"))
    return io.BytesIO(body.replace("<", "\\u003c").encode())


async def test_a_pod_that_is_too_large_is_refused_with_its_size_and_not_decoded(verbs, monkeypatch):
    monkeypatch.setattr(endpoints, "decode", lambda *_: pytest.fail("it was decoded"))
    async with verbs.post("/scheduler/filter", data=sent_by_go(1_400_000)) as response:
        answer = await response.json()
    assert response.status == 200
    refused = answer["FailedAndUnresolvableNodes"]
    assert set(refused) == {"a", "b"}
    assert refused["a"].startswith("the pod has 8.4 MB as kube-scheduler sends it")
    assert "at most 2.1 MB are read" in refused["a"]


async def test_a_pod_of_as_many_letters_as_are_read_is_served(verbs):
    async with verbs.post("/scheduler/filter", data=sent_by_go(300_000)) as response:
        assert len((await response.json())["NodeNames"]) == 1


PLAIN_JSON_IT_IS_NOT = [
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"Content-Type": ""},
    {"Content-Encoding": "gzip"},
]


@pytest.mark.parametrize("path", VALID)
async def test_a_body_that_is_not_plain_json_is_refused(both, path):
    for headers in PLAIN_JSON_IT_IS_NOT:
        async with both.post(path, json=VALID[path], headers=JSON | TOKEN | headers) as response:
            assert (await answer_of(response))[:2] == (415, "MediaTypeInvalid")


async def test_a_charset_after_the_media_type_is_accepted(verbs):
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    data = json.dumps(filter_body())
    async with verbs.post("/scheduler/filter", data=data, headers=headers) as response:
        assert response.status == 200


async def test_other_methods_are_refused(both):
    for path in VALID:
        for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
            async with both.request(method, path) as response:
                assert (await answer_of(response))[:2] == (405, "MethodNotAllowed")
                assert response.headers["Allow"] == "POST"


async def test_other_paths_are_refused(both):
    for path in ("/", "/scheduler/preempt", "/scheduler/filter/", "/healthz/", "/*"):
        async with both.post(path, json={}, allow_redirects=False) as response:
            assert (await answer_of(response))[:2] == (404, "NotFound")


async def test_health_and_metrics_are_only_read(both, health):
    async with both.post("/metrics", json={}) as response:
        assert (await answer_of(response))[0] == 405
    for path in ("/healthz", "/readyz"):
        async with health.post(path, json={}) as response:
            assert (await answer_of(response))[0] == 405


async def ask(plans, headers=TOKEN, **job):
    body = msgspec.json.encode(plan_request("train", **job))
    async with plans.post(PLAN, data=body, headers=headers) as response:
        return response.status, await response.json()


async def test_a_plan_has_gpus_for_each_worker_of_a_gang(plans):
    status, answer = await ask(plans, workers=2, gpus=4)
    assert status == 200
    assert {each["node"] for each in answer["placement"]} == {"a", "b"}


async def test_the_answer_says_why_a_gang_does_not_fit(plans):
    status, answer = await ask(plans, workers=3, gpus=4)
    assert (status, answer["never"]) == (409, True)
    assert "2 of 2 nodes could run a worker" in answer["message"]


async def test_a_plan_needs_a_token(plans, world):
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
    assert answer["message"] == "operator may not create gpujobs/plan in namespace team"


async def test_reviews_are_cached_for_a_while_and_then_requested_again(plans, server, world):
    await ask(plans)
    await ask(plans)
    assert server.reviews == 2
    world.now += 11
    await ask(plans)
    assert server.reviews == 4


async def test_strangers_cost_the_api_server_a_few_questions_and_no_more(plans, server):
    for number in range(50):
        status, _ = await ask(plans, headers={"Authorization": f"Bearer forged-{number}"})
        assert status == (401 if number < 5 else 429)
    assert server.reviews == 5


async def test_failed_token_reviews_count_against_no_client(plans, server):
    server.reviews_fail = True
    for _ in range(10):
        assert (await ask(plans))[0] not in {200, 401, 403, 429}
    server.reviews_fail = False
    assert (await ask(plans))[0] == 200


async def test_failed_access_reviews_count_against_no_client(plans, server, world):
    await ask(plans)
    server.reviews_fail = True
    for number in range(10):
        path = names.PLAN_ROUTE.format(namespace=f"n{number}")
        body = VALID[PLAN] | {"namespace": f"n{number}"}
        async with plans.post(path, json=body, headers=TOKEN) as response:
            assert response.status not in {200, 401, 403, 429}
    server.reviews_fail = False
    world.now += 5
    async with plans.post(path, json=body, headers=TOKEN) as response:
        assert response.status == 200


async def test_strangers_lock_out_no_valid_token_of_their_address(plans, server, world):
    assert (await ask(plans))[0] == 200
    world.now += 11
    for number in range(10):
        await ask(plans, headers={"Authorization": f"Bearer forged-{number}"})
    before = server.reviews
    assert (await ask(plans))[0] == 200
    assert server.reviews > before


async def test_a_token_that_was_valid_and_is_no_more_is_refused(plans, server, world):
    await ask(plans)
    world.now += 11
    server.users.clear()
    assert (await ask(plans))[0] == 401


async def test_a_refused_token_is_asked_about_once(plans, server):
    for _ in range(5):
        assert (await ask(plans, headers={"Authorization": "Bearer forged"}))[0] == 401
    assert server.reviews == 1


async def test_an_endless_series_of_refused_tokens_displaces_no_client(
    plans, server, world, monkeypatch
):
    monkeypatch.setattr("gpupack_httpserver.access.TokenBuckets.take", lambda *_: True)
    await ask(plans)
    for number in range(KEPT_ANSWERS + 10):
        await ask(plans, headers={"Authorization": f"Bearer forged-{number}"})
    before = server.reviews
    assert (await ask(plans))[0] == 200
    assert server.reviews == before


async def test_a_user_without_the_right_costs_a_few_questions_and_no_more(plans, server):
    server.allowed.clear()
    for number in range(20):
        path = names.PLAN_ROUTE.format(namespace=f"n{number}")
        body = VALID[PLAN] | {"namespace": f"n{number}"}
        async with plans.post(path, json=body, headers=TOKEN) as response:
            assert response.status == (403 if number < 5 else 429)
    assert server.reviews == 1 + 5


async def test_a_replica_that_does_not_lead_makes_no_plan_and_is_ready_to_lead(
    plans, health, parts
):
    parts.leadership.remove(objects.Lease())
    status, answer = await ask(plans)
    assert (status, answer["reason"]) == (503, "NotReady")
    async with health.get("/readyz") as response:
        assert (response.status, await response.text()) == (200, "ok")


async def test_an_unreadable_pod_spec_is_a_bad_request(plans):
    status, answer = await ask(plans, pod_spec={"containers": 3})
    assert (status, answer["reason"]) == (400, "RequestInvalid")


async def test_health_is_for_anyone_and_metrics_are_not(plans, health):
    async with health.get("/healthz") as response:
        assert response.status == 200
    async with plans.get("/metrics") as response:
        assert response.status == 401


async def test_metrics_tell_claims_and_devices(plans):
    await ask(plans, workers=3)
    async with plans.get("/metrics", headers=TOKEN) as response:
        text = await response.text()
    assert 'gpupack_extender_claims{state="planned"} 3.0' in text
    assert 'gpupack_extender_devices{state="free"} 5.0' in text
    assert 'gpupack_unreadable_objects_total{kind="pods"} 0.0' in text
    assert 'gpupack_extender_calls_total{outcome="placed",verb="plan"} 1.0' in text


@pytest.mark.parametrize("path", ["/snapshot", "/demand-forecast"])
async def test_snapshot_and_forecast_need_the_right_to_read_them(plans, path):
    async with plans.get(path) as response:
        assert response.status == 401


async def test_a_snapshot_is_the_cluster_as_the_ledger_holds_it(plans, world):
    await ask(plans, workers=3)
    async with plans.get("/snapshot", headers=TOKEN) as response:
        shown = load(await response.json())
    assert dump(shown) == dump(world.ledger.cluster)
    assert len(shown.held()) == 3


async def test_no_snapshot_is_shown_while_a_watch_is_stale(plans, parts):
    parts.watch.age = 91.0
    async with plans.get("/snapshot", headers=TOKEN) as response:
        assert response.status == 503


async def test_a_forecast_tells_what_pods_have_asked_for(plans, world):
    world.ledger.pods.upsert(pod("a", gpus=2))
    async with plans.get("/demand-forecast", headers=TOKEN) as response:
        shown = load_forecast(await response.json())
    assert [demand.request.gpus for demand in shown.mix.demands] == [2]


TURNS = "/v1beta1/turns"


async def turns(plans, **query):
    async with plans.get(TURNS, headers=TOKEN, params=query) as response:
        return response.status, await response.json()


async def test_notifications_need_the_right_to_read_them(plans, server):
    async with plans.get(TURNS, params={"number": "0"}) as response:
        assert response.status == 401
    server.allowed = set()
    status, problem = await turns(plans, number="0")
    assert (status, problem["message"]) == (403, "operator may not watch gpujobs/plan")


async def test_a_waiting_client_is_notified_of_an_admission(plans, world):
    _, begun = await turns(plans, queue="", number="0")
    assert begun["allJobs"]
    known = {"queue": begun["queue"], "number": str(begun.get("number", 0))}
    waiting = asyncio.create_task(turns(plans, **known))
    await asyncio.sleep(0.05)
    world.turns.notify("team", "train")
    async with asyncio.timeout(30):
        _, heard = await waiting
    assert heard["jobs"] == [{"namespace": "team", "name": "train"}]


@pytest.mark.parametrize("number", ["", "-1", "seven", "9" * 30])
async def test_an_invalid_notification_number_is_refused(plans, number):
    status, problem = await turns(plans, queue="q", number=number)
    assert (status, "say the number of the last turn" in problem["message"]) == (400, True)


async def test_a_replica_that_does_not_lead_sends_no_notifications(plans, parts):
    parts.leadership.replace([])
    assert (await turns(plans, queue="", number="0"))[0] == 503
