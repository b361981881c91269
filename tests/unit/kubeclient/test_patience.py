# SPDX-License-Identifier: Apache-2.0
"""Which requests are sent again; the server says how often it was asked."""

import time

import pytest
import tenacity
from aiohttp import web
from fake_api import kubeconfig, serving, status

from gpupack_kubeclient import patience
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import KubeError, Refused, Unreachable
from gpupack_kubeclient.patience import Patience
from gpupack_kubeclient.resources import LEASES


class Server:
    """Answers each request with the next of `answers`; None hangs up, then with an object."""

    def __init__(self, *answers):
        self.answers, self.asked, self.pauses = list(answers), 0, []

    async def answer(self, request):
        self.asked += 1
        if not self.answers:
            return web.json_response({"metadata": {"name": "a"}})
        answer = self.answers.pop(0)
        if answer is None:
            request.transport.abort()
            return web.Response()
        code, after = answer
        refusal = status(code, "Busy")
        if after is not None:
            refusal.headers["Retry-After"] = after
        return refusal

    async def called(self, call, *, patient=True):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        waits = Patience(lambda seconds, error: self.pauses.append(seconds))
        async with serving(app) as address:
            with kubeconfig(address) as path:
                given = {"patience": waits} if patient else {}
                async with Api.connect({"KUBECONFIG": path}, **given) as api:
                    return await call(api)


async def read(api):
    return await api.get(LEASES, "a", namespace="n")


async def write(api):
    return await api.create(LEASES, {}, namespace="n")


async def follow(api):
    return [line async for line in api.follow("/log", silence_seconds=30)]


@pytest.mark.parametrize("call", [read, write, follow])
@pytest.mark.parametrize("code", [429, 503])
async def test_a_request_waits_for_retry_after_and_continues(call, code):
    server = Server((code, "1"))
    began = time.monotonic()
    await server.called(call)
    assert time.monotonic() - began >= 1
    assert (server.asked, server.pauses) == (2, [1.0])


@pytest.mark.parametrize("call", [read, write])
async def test_a_request_with_a_too_long_retry_after_fails_at_once(call):
    server = Server((429, "3600"))
    with pytest.raises(Refused) as refused:
        await server.called(call)
    assert (server.asked, refused.value.retry_after_seconds) == (1, 3600)


async def test_without_retry_after_a_request_pauses_briefly():
    server = Server((429, "0"), (429, "0"))
    await server.called(write)
    assert (server.asked, server.pauses) == (3, [0.5, 1.0])


async def test_a_request_with_repeated_retry_after_is_sent_ten_times(monkeypatch):
    monkeypatch.setattr(patience, "_BACKOFF", tenacity.wait_none())
    server = Server(*[(429, "0")] * 99)
    with pytest.raises(Refused):
        await server.called(write)
    assert server.asked == 10


@pytest.mark.parametrize("answer", [None, (500, None), (502, None), (504, "rubbish")])
async def test_reads_are_sent_again_after_a_server_error(answer):
    server = Server(answer)
    await server.called(read)
    assert server.asked == 2


@pytest.mark.parametrize("answer", [None, (500, None), (503, None), (504, "1")])
async def test_a_write_that_may_have_happened_is_not_sent_again(answer):
    server = Server(answer)
    with pytest.raises(KubeError):
        await server.called(write)
    assert server.asked == 1


async def test_a_read_with_repeated_server_errors_is_sent_four_times():
    server = Server(*[(500, None)] * 9)
    with pytest.raises(Refused):
        await server.called(read)
    assert server.asked == 4


async def test_components_send_each_request_once():
    server = Server((429, "1"))
    with pytest.raises(Refused):
        await server.called(read, patient=False)
    assert server.asked == 1


async def test_a_server_that_is_not_there_is_not_waited_for():
    waits = Patience(lambda seconds, error: pytest.fail("it waits"))
    with kubeconfig("http://127.0.0.1:1") as path:
        async with Api.connect({"KUBECONFIG": path}, patience=waits) as api:
            with pytest.raises(Unreachable):
                await read(api)
