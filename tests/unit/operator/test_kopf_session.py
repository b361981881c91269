# SPDX-License-Identifier: Apache-2.0
"""What kopf gets to read, from a server that sends what a tenant may have made."""

import asyncio
import json

import kopf
import pytest
from aiohttp import web
from fake_api import connected, serving

from gpupack_operator import kopf_session, watches
from gpupack_operator.audit import Audit, Watched
from gpupack_operator.cache import DEEPEST_LEVELS, READABLE_GPUJOBS, Cache


def event(name, **spec):
    metadata = {"name": name, "namespace": "team"}
    return json.dumps({"type": "ADDED", "object": {"metadata": metadata, "spec": spec}})


def nested(levels):
    return event("deep", field="DEEP").replace('"DEEP"', '{"a":' * levels + "1" + "}" * levels)


class Served:
    """A server that lists one GPUJob, written as text: no JSON library writes it."""

    def __init__(self, item):
        self.item = item

    def app(self):
        app = web.Application()
        app.router.add_get("/{path:.*}", self.answer)
        return app

    async def answer(self, request):
        if "watch" in request.query:
            await asyncio.sleep(60)
        page = '{"metadata":{"resourceVersion":"1"},"items":[' + self.item + "]}"
        if "PartialObjectMetadataList" in request.headers["Accept"]:
            meta = {"name": "deep", "namespace": "team", "uid": "u", "resourceVersion": "1"}
            page = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": meta}]})
        return web.Response(text=page, content_type="application/json")


class Quiet:
    """A router to which nothing matters."""

    def gpujob(self, seen, *, gone):
        pass


@pytest.fixture
def stream():
    return kopf_session.GpuJobStream()


@pytest.fixture
async def heard(stream):
    """What of a stream kopf reads, by the names of the objects."""

    async def read(*events, chunk):
        async def answer(request):
            response = web.StreamResponse()
            await response.prepare(request)
            body = "".join(f"{line}\n" for line in events).encode()
            for start in range(0, len(body), chunk):
                await response.write(body[start : start + chunk])
            return response

        app = web.Application()
        app.router.add_get("/", answer)
        async with serving(app) as address:
            connection = kopf_session.session(
                kopf.ConnectionInfo(server=address, token="t"), stream
            )
            async with connection.aiohttp_session as http, http.get(address) as response:
                lines = [line async for line in response.content.iter_chunked(1 << 20)]
        return [json.loads(line)["object"]["metadata"]["name"] for line in lines]

    return read


@pytest.mark.parametrize("chunk", [7, 1 << 20])
async def test_events_come_as_whole_lines(heard, chunk):
    assert await heard(event("a"), event("b", note='{"[\\"'), chunk=chunk) == ["a", "b"]


async def test_an_object_that_is_nested_deeply_is_passed_over_by_name(heard, stream, caplog):
    assert await heard(event("a"), nested(5000), nested(90), chunk=1 << 16) == ["a", "deep"]
    assert stream.unreadable == 1
    assert "GPUJob team/deep is passed over: more than 100 levels" in caplog.text


@pytest.mark.parametrize("levels", [50, 95, 96, 97, 98, 120, 500, 900, 1500])
async def test_what_kopf_is_not_shown_neither_the_first_list_nor_the_audit_takes_in(heard, levels):
    meta = {"name": "deep", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    item = {"metadata": meta, "spec": {"gpus": 1, "template": {"spec": "DEEP"}}}
    text = json.dumps(item).replace('"DEEP"', '{"a":' * levels + "1" + "}" * levels)
    shown = await heard('{"type":"ADDED","object":' + text + "}", chunk=1 << 20)
    cache = Cache()
    gpujobs = watches.gpujobs_of(cache, Quiet())
    async with connected(Served(text).app()) as (api, _):
        async with asyncio.timeout(20):
            await watches.list_once(api, gpujobs, namespace="")
        listed = list(cache.keys())
        audit = Audit(api, cache, namespace="")
        audited, _ = await audit._list(Watched(READABLE_GPUJOBS, "", dict))
    assert len(shown) == len(listed) == len(audited) == (levels <= DEEPEST_LEVELS - 3)


async def test_an_object_that_no_etcd_can_hold_is_passed_over_by_name(heard, stream, caplog):
    large = event("large", note="x" * (5 << 20))
    assert await heard(large, event("b"), chunk=1 << 20) == ["b"]
    assert stream.unreadable == 1
    assert "GPUJob team/large is passed over: it takes 52" in caplog.text


async def test_a_connection_carries_the_token_and_asks_for_nothing_compressed():
    info = kopf.ConnectionInfo(server="http://127.0.0.1:1", token="secret")
    connection = kopf_session.session(info, kopf_session.GpuJobStream())
    async with connection.aiohttp_session as http:
        assert http.headers["Authorization"] == "Bearer secret"
        assert http.headers["Accept-Encoding"] == "identity"
