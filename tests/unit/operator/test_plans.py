# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib

import fake_api
import msgspec
import pytest
from aiohttp import web

from gpupack_crds.plan import PlanRefusal, PlanRequest, PlanResponse
from gpupack_operator.errors import PlanBusy, PlanInvalid, PlanUnanswered
from gpupack_operator.plans import PlanClient
from gpupack_operator.settings import PlanSettings

PLACE = {"workers": "0", "node": "a", "gpus": ["G"], "memoryMiB": [1]}
FULL = {"reason": "TooFewFreeGpus", "message": "full"}


@pytest.fixture
def request_(build):
    job = build.gpujob()
    return PlanRequest(
        namespace="team",
        name="train",
        uid="u",
        attempt=1,
        spec=job.spec,
        pod_spec=msgspec.Raw(b'{"a": 1}'),
    )


@pytest.fixture
def plan_api(tmp_path):
    """A plan API on loopback that gives one answer and notes the questions."""
    (tmp_path / "token").write_text("secret\n")

    @contextlib.asynccontextmanager
    async def serving(status, body, **options):
        received = []

        async def answer(request):
            received.append((request.path, request.headers["Authorization"], await request.json()))
            return web.json_response(body, status=status)

        app = web.Application()
        app.router.add_post("/{path:.*}", answer)
        async with fake_api.serving(app) as url:
            settings = PlanSettings(url=url, ca=None, token=tmp_path / "token")
            async with contextlib.aclosing(PlanClient(settings, **options)) as client:
                yield client, received

    return serving


async def test_a_plan_is_requested_with_the_token_of_the_pod(plan_api, request_):
    async with plan_api(200, {"placement": [PLACE], "expiresSeconds": 10}) as (client, received):
        answer = await client.request_plan(request_)
    assert isinstance(answer, PlanResponse)
    path, token, question = received[0]
    assert (path, token) == ("/v1beta1/namespaces/team/plan", "Bearer secret")
    assert question["podSpec"] == {"a": 1}


async def test_a_refusal_is_an_answer(plan_api, request_):
    async with plan_api(409, FULL) as (client, _):
        answer = await client.request_plan(request_)
    assert answer == PlanRefusal(reason="TooFewFreeGpus", message="full")


@pytest.mark.parametrize(
    ("status", "body", "denied"),
    [
        (503, {"reason": "NotReady", "message": "not the leader"}, False),
        (403, {"reason": "Forbidden", "message": "no"}, True),
        (200, {"placement": "nonsense"}, False),
        (500, "nonsense", False),
        (400, {"reason": "CallInvalid", "message": "unknown field `x`"}, False),
        (400, "a proxy's page", False),
    ],
)
async def test_any_other_response_is_no_answer(plan_api, request_, status, body, denied):
    async with plan_api(status, body) as (client, _):
        with pytest.raises(PlanUnanswered) as raised:
            await client.request_plan(request_)
    assert raised.value.denied is denied


async def test_an_invalid_request_raises_the_message_of_the_api(plan_api, request_):
    body = {"reason": "RequestInvalid", "message": "cpu: 'many' is no quantity"}
    async with plan_api(400, body) as (client, _):
        with pytest.raises(PlanInvalid, match=r"^cpu: 'many' is no quantity$"):
            await client.request_plan(request_)


async def test_a_second_concurrent_request_is_refused_at_once(plan_api, request_):
    freed = []
    async with plan_api(409, FULL, on_free=lambda: freed.append(1)) as (client, received):
        first = asyncio.create_task(client.request_plan(request_))
        await asyncio.sleep(0)
        with pytest.raises(PlanBusy):
            await client.request_plan(request_)
        assert freed == []
        await first
    assert (len(received), freed) == (1, [1])


async def test_calls_pause_after_one_without_an_answer(plan_api, request_):
    now = [0.0]
    async with plan_api(503, {}, clock=lambda: now[0]) as (client, received):
        for moment, calls in ((0.0, 1), (1.9, 1), (2.1, 2)):
            now[0] = moment
            with pytest.raises(PlanUnanswered, match=r"gives no answer: .*status 503"):
                await client.request_plan(request_)
            assert len(received) == calls


async def test_an_unreachable_plan_api_is_no_answer(tmp_path, request_):
    (tmp_path / "token").write_text("secret")
    settings = PlanSettings(url="http://127.0.0.1:1", ca=None, token=tmp_path / "token")
    with pytest.raises(PlanUnanswered, match="does not answer"):
        await PlanClient(settings).request_plan(request_)


async def test_a_missing_token_is_no_answer(tmp_path, request_):
    settings = PlanSettings(url="http://127.0.0.1:1", ca=None, token=tmp_path / "none")
    with pytest.raises(PlanUnanswered):
        await PlanClient(settings).request_plan(request_)
