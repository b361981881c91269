# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import json
import ssl

import httpx
import pytest
import tenacity
from rest_answers import problem
from self_signed import self_signed

from gpupack_cli import errors
from gpupack_cli.rest import Rest, decode_answer, refusal_error
from gpupack_kubeclient import patience
from gpupack_restapi.nodes import Status

STATUS = {
    "utilization": {"gpu_utilization": 50.0, "gpu_memory_usage": 40.0},
    "available_nodes": [],
    "total_nodes": 1,
    "total_gpus": 8,
    "available_gpus": 4,
    "timestamp": "2026-11-25T12:00:00Z",
    "a_field_of_a_later_release": 1,
}


def answering(respond, **given):
    transport = httpx.MockTransport(respond)
    client = httpx.AsyncClient(transport=transport, base_url="https://api/api/v1/gpu/")
    return Rest(client, **given)


async def test_unknown_fields_of_an_answer_are_ignored():
    asked = []

    def respond(request):
        asked.append(str(request.url))
        return httpx.Response(200, json=STATUS)

    found = await answering(respond).get("status", Status, namespace="", limit=5)
    assert found.total_gpus == 8
    assert asked == ["https://api/api/v1/gpu/status?limit=5"]


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[1]", b"[" * 100_000])
def test_an_answer_of_another_server_is_reported(body):
    with pytest.raises(errors.RestUnavailable, match="use the same version of"):
        decode_answer(body, Status, "status")


@pytest.mark.parametrize(
    ("status", "body", "kind", "says"),
    [
        (
            400,
            {"detail": "gpus is 0", "fix": "name 1 or more"},
            errors.InputInvalid,
            "gpus is 0; name 1 or more",
        ),
        (
            401,
            {"detail": "send a bearer token"},
            errors.Unauthenticated,
            "kubectl create token ACCOUNT",
        ),
        (
            401,
            {"detail": "send a bearer token"},
            errors.Unauthenticated,
            "does not accept your credentials",
        ),
        (401, {"field": "Authorization"}, errors.Unauthenticated, "needs a token here"),
        (403, {"detail": "bob may not list"}, errors.PermissionDenied, "bob may not list"),
        (404, {"detail": "there is no GPUJob a/b"}, errors.ObjectNotFound, "no GPUJob a/b"),
        (404, {"detail": "Not Found"}, errors.RestUnavailable, "has no call jobs"),
        (404, {"detail": "no", "field": "path"}, errors.RestUnavailable, "has no call jobs"),
        (405, {"detail": "no", "field": "method"}, errors.RestUnavailable, "has no call jobs"),
        (404, b"", errors.RestUnavailable, "has no call jobs"),
        (429, {"detail": "wait a second"}, errors.RestUnavailable, "wait a second"),
        (503, b"upstream away", errors.RestUnavailable, "status 503"),
    ],
)
def test_a_refusal_is_reported_with_a_fix(status, body, kind, says):
    sent = json.dumps(problem(status, **body)).encode() if isinstance(body, dict) else body
    found = refusal_error(status, sent, "jobs")
    assert type(found) is kind
    assert says in str(found)


async def test_a_server_that_does_not_answer_is_named():
    def respond(request):
        raise httpx.ConnectError("connection refused")

    with pytest.raises(errors.RestUnavailable, match="https://api/ does not answer"):
        await answering(respond).get("status", Status)


@pytest.mark.parametrize(
    "answer", [httpx.ConnectError("refused"), httpx.Response(404), httpx.Response(200, text="hi")]
)
@pytest.mark.parametrize("is_named", [True, False])
async def test_a_wrong_address_suggests_the_option_and_the_variable(answer, is_named):
    def respond(request):
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(errors.RestUnavailable) as refused:
        await answering(respond, is_named=is_named).get("cost", Status)
    hint = "check that --server or GPUPACK_SERVER is the address of gpupack-api"
    assert str(refused.value).endswith(hint) is is_named


@pytest.mark.parametrize("shows", [True, False])
@pytest.mark.parametrize(
    "ends", [httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError], ids=lambda e: e.__name__
)
async def test_a_closed_connection_suggests_a_rejected_certificate(ends, shows):
    def respond(request):
        raise ends("")

    client = answering(respond)._client
    with pytest.raises(errors.RestUnavailable) as error:
        await Rest(client, uses_certificate=shows).get("status", Status)
    assert ("check your client certificate" in str(error.value)) is shows


async def test_an_untrusted_certificate_is_reported_with_the_ca_option(tmp_path):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*self_signed(tmp_path))
    listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    async with listening, httpx.AsyncClient(base_url=f"https://localhost:{port}/") as client:
        with pytest.raises(errors.RestUnavailable, match="by --ca or GPUPACK_CA"):
            await Rest(client).get("status", Status)


@pytest.mark.parametrize(("code", "asked"), [(429, 2), (503, 2), (500, 1)])
async def test_a_call_waits_as_long_as_the_server_requests(code, asked):
    answers = [httpx.Response(code, headers={"Retry-After": "1"}, json={}), None]
    calls = []

    def answer(request):
        calls.append(request)
        return answers.pop(0) or httpx.Response(200, content=b"done")

    transport = httpx.MockTransport(answer)
    async with httpx.AsyncClient(transport=transport, base_url="https://here") as client:
        with contextlib.suppress(errors.RestUnavailable):
            assert await Rest(client).get_bytes("health") == b"done"
    assert len(calls) == asked


async def test_a_server_that_requests_retries_is_called_ten_times(monkeypatch):
    monkeypatch.setattr(patience, "_BACKOFF", tenacity.wait_none())
    calls = []

    def answer(request):
        calls.append(request)
        return httpx.Response(429, headers={"Retry-After": "0"}, json={})

    with pytest.raises(errors.RestUnavailable):
        await answering(answer).get_bytes("health")
    assert len(calls) == 10
