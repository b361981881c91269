# SPDX-License-Identifier: Apache-2.0
"""kopf receives only objects that it can process, whatever a tenant creates."""

import asyncio
import contextlib
import datetime as dt
import itertools
import json
import os
import ssl

import kopf
import pytest
from aiohttp import web
from fake_api import connected, kubeconfig, serving
from self_signed import self_signed

from gpupack_kubeclient import client
from gpupack_kubeclient.errors import Oversized
from gpupack_operator import handlers, kopf_session, watches
from gpupack_operator.audit import Audit, WatchedKind
from gpupack_operator.cache import MAX_GPUJOB_BYTES, MAX_GPUJOB_LEVELS, READABLE_GPUJOBS, Cache


def event(name, **spec):
    metadata = {"name": name, "namespace": "team", "uid": name}
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


class IgnoringRouter:
    """Router that ignores all events."""

    def on_gpujob(self, seen, *, gone):
        pass


@pytest.fixture
def stream():
    return kopf_session.GpuJobStream()


async def sent(stream, *events, chunk):
    """Return the lines that kopf reads from a stream that is sent in chunks of this size."""

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
        with kubeconfig(address) as path:
            connection = await kopf_session.session({"KUBECONFIG": path}, stream)
        async with connection.aiohttp_session as http, http.get(address) as response:
            return [line async for line in response.content.iter_chunked(1 << 20)]


@pytest.fixture
async def heard(stream):
    """Return the names of the objects that kopf reads from a stream."""

    async def read(*events, chunk):
        lines = await sent(stream, *events, chunk=chunk)
        return [json.loads(line)["object"]["metadata"]["name"] for line in lines]

    return read


@pytest.mark.parametrize("chunk", [7, 1 << 20])
async def test_kopf_reads_whole_lines(heard, chunk):
    assert await heard(event("a"), event("b", note='{"[\\"'), chunk=chunk) == ["a", "b"]


async def test_a_deeply_nested_object_is_skipped_and_named(heard, stream, caplog):
    assert await heard(event("a"), nested(5000), nested(90), chunk=1 << 16) == ["a", "deep"]
    assert stream.unreadable == 1
    assert "GPUJob team/deep is skipped: more than 100 levels" in caplog.text


@pytest.mark.parametrize("levels", [50, 95, 96, 97, 98, 120, 500, 900, 1500])
async def test_kopf_the_first_list_and_the_audit_skip_the_same_objects(heard, levels):
    meta = {"name": "deep", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    item = {"metadata": meta, "spec": {"gpus": 1, "template": {"spec": "DEEP"}}}
    text = json.dumps(item).replace('"DEEP"', '{"a":' * levels + "1" + "}" * levels)
    shown = await heard('{"type":"ADDED","object":' + text + "}", chunk=1 << 20)
    cache = Cache()
    gpujobs = watches.gpujobs_of(cache, IgnoringRouter())
    async with connected(Served(text).app()) as (api, _):
        async with asyncio.timeout(30):
            await watches.list_once(api, gpujobs, namespace="")
        listed = list(cache.keys())
        audit = Audit(api, cache, gpujobs.drop, namespace="")
        audited, _ = await audit._list(WatchedKind(READABLE_GPUJOBS, "", dict))
    assert len(shown) == len(listed) == len(audited) == (levels <= MAX_GPUJOB_LEVELS - 3)


def written(item):
    return json.dumps(item, separators=(",", ":"))


@pytest.mark.parametrize(("more", "audited"), [(-1, True), (0, True), (1, False), (99, False)])
async def test_kopf_receives_every_gpujob_that_the_audit_reads(heard, more, audited):
    meta = {"name": "large", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    item = {"metadata": meta, "spec": {"gpus": 1, "template": {"note": ""}}}
    item["spec"]["template"]["note"] = "x" * (MAX_GPUJOB_BYTES + more - len(written(item)))
    shown = await heard(written({"type": "MODIFIED", "object": item}), chunk=1 << 20)
    with contextlib.nullcontext() if audited else pytest.raises(Oversized):
        client.read(written(item).encode(), READABLE_GPUJOBS)
    assert bool(shown) >= audited


async def test_an_object_larger_than_etcd_accepts_is_skipped_and_named(heard, stream, caplog):
    large = event("large", note="x" * (5 << 20))
    assert await heard(large, event("b"), chunk=1 << 20) == ["b"]
    assert stream.unreadable == 1
    assert "GPUJob team/large is skipped: it takes 52" in caplog.text


ERRORS = {
    "500": '{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd is away"}}',
    "429": ' { "type" : "ERROR", "object": {"code": 429, "message": "etcd is away"}}',
    "no code": '{"type":"ERROR","object":{"message":"etcd is away"}}',
    "no object": '{"type":"ERROR","object":"etcd is away"}',
}


class WatchedServer:
    """A server with a watch of GPUJobs and the discovery that kopf needs; it records writes."""

    GROUPS = ("apiextensions.k8s.io/v1", "events.k8s.io/v1", "gpupack.dev/v1beta1")
    KINDS = {
        "/api/v1": [("namespaces", "Namespace"), ("events", "Event")],
        "/apis/apiextensions.k8s.io/v1": [
            ("customresourcedefinitions", "CustomResourceDefinition")
        ],
        "/apis/gpupack.dev/v1beta1": [("gpujobs", "GPUJob")],
    }

    def __init__(self):
        self.watches, self.writes = [], []

    def app(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        return app

    def lines(self):
        """Return the lines of the latest watch."""
        raise NotImplementedError

    def discovery(self, path):
        """Return the discovery document of a path."""
        found = {"versions": ["v1"], "groups": [], "resources": []}
        for each in self.GROUPS:
            name, version = each.split("/")
            of = {"version": version}
            found["groups"].append({"name": name, "versions": [of], "preferredVersion": of})
        for plural, kind in self.KINDS.get(path, ()):
            verbs = {"namespaced": plural == "gpujobs", "verbs": ["list", "watch"]}
            found["resources"].append({"name": plural, "singularName": "", "kind": kind} | verbs)
        return found

    async def answer(self, request):
        if request.method != "GET":
            self.writes.append((request.method, request.path))
            return web.json_response({"code": 403}, status=403)
        if "watch" not in request.query:
            return web.json_response(self.discovery(request.path))
        self.watches.append(asyncio.get_running_loop().time())
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write("".join(f"{line}\n" for line in self.lines()).encode())
        await asyncio.sleep(60)
        return response

    async def heard(self, monkeypatch, *, of, tls=None, **cluster):
        """Return the names of the GPUJobs that kopf reports, once there are `of`."""
        stop, cache = asyncio.Event(), Cache()
        gpujobs = watches.gpujobs_of(cache, IgnoringRouter())
        registry = handlers.registry(gpujobs, kopf_session.GpuJobStream(), os.environ)
        async with serving(self.app(), tls=tls) as address:
            with kubeconfig(address, **cluster) as path:
                monkeypatch.setenv("KUBECONFIG", path)
                listening = asyncio.create_task(
                    kopf.operator(
                        registry=registry,
                        settings=handlers.settings(),
                        standalone=True,
                        clusterwide=True,
                        stop_flag=stop,
                    )
                )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(30):
                        while len(cache.keys()) < of and not listening.done():
                            await asyncio.sleep(0.02)
                stop.set()
                await listening
        return {key.name for key in cache.gpujobs}


class Failing(WatchedServer):
    """A server of which each watch ends with an error, after one more GPUJob."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def lines(self):
        return event(f"job-{len(self.watches)}", gpus=1), self.error


class Listing(WatchedServer):
    """A server that lists GPUJobs with these metadata."""

    def __init__(self, *listed):
        super().__init__()
        self.listed = listed

    def lines(self):
        for number, metadata in enumerate(self.listed):
            listed = json.loads(event(f"job-{number}", gpus=1))
            listed["object"]["metadata"] |= metadata
            yield json.dumps(listed)


@pytest.mark.parametrize("error", ERRORS)
async def test_every_error_of_a_watch_is_presented_as_410_and_logged(stream, caplog, error):
    lines = await sent(stream, ERRORS[error], event("a"), chunk=7)
    assert [json.loads(line)["object"]["code"] for line in lines] == [410]
    assert "the watch of GPUJobs ended: " in caplog.text


async def test_an_expired_resource_version_is_not_logged(stream, caplog):
    usual = ERRORS["500"].replace("500", "410")
    assert len(await sent(stream, usual, chunk=7)) == 1
    assert caplog.text == ""


async def test_kopf_lists_again_after_an_error_within_a_watch(monkeypatch):
    server = Failing(ERRORS["500"])
    assert {"job-1", "job-2"} <= await server.heard(monkeypatch, of=2)
    pauses = [after - before for before, after in itertools.pairwise(server.watches)]
    assert min(pauses) >= handlers.settings().watching.reconnect_backoff


LAST_STATES = ("x", "5", "[" * 3000, '{"metadata": 1}', "null", "{}")


async def test_annotations_and_finalizers_of_kopf_written_by_users_are_ignored(monkeypatch, caplog):
    states = [
        {"annotations": {f"kopf.zalando.org/{key}": state}}
        for key in ("last-handled-configuration", "gpujob", "touch-dummy", "kopf-managed")
        for state in LAST_STATES
    ]
    finalizers = {"finalizers": ["kopf.zalando.org/KopfFinalizerMarker"]}
    going = {"deletionTimestamp": "2026-11-21T12:00:00Z", **finalizers}
    server = Listing({}, *states, finalizers, going)
    listed = len(server.listed)
    assert await server.heard(monkeypatch, of=listed) == {f"job-{n}" for n in range(listed)}
    assert server.writes == []
    assert "Throttling" not in caplog.text


async def test_a_connection_uses_the_kubeconfig_and_requests_no_compression():
    with kubeconfig("https://localhost:1", user={"token": "secret", "as": "ann"}) as path:
        stream = kopf_session.GpuJobStream()
        connection = await kopf_session.session({"KUBECONFIG": path}, stream)
    async with connection.aiohttp_session as http:
        assert http.headers["Authorization"] == "Bearer secret"
        assert http.headers["Impersonate-User"] == "ann"
        assert http.headers["Accept-Encoding"] == "identity"


class Renewing(Failing):
    """A server that has another certificate after each watch, and its file for all clients."""

    def __init__(self, folder):
        super().__init__(ERRORS["500"])
        self.folder = folder
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.renew()

    async def answer(self, request):
        answered = await super().answer(request)
        answered.force_close()
        return answered

    def renew(self):
        """Connections that are open stay as they are."""
        self.tls.load_cert_chain(*self_signed(self.folder))

    def lines(self):
        self.renew()
        return super().lines()


async def test_a_watch_continues_after_the_ca_of_the_cluster_was_replaced(monkeypatch, tmp_path):
    monkeypatch.setattr(kopf_session, "FILE_CREDENTIALS_LIFETIME", dt.timedelta(seconds=1))
    server = Renewing(tmp_path)
    authority = {"certificate-authority": str(tmp_path / "tls.crt")}
    heard = await server.heard(monkeypatch, of=2, tls=server.tls, **authority)
    assert {"job-1", "job-2"} <= heard


async def expiration(server="https://localhost:1", **how):
    with kubeconfig(server, **how) as path:
        made = await kopf_session.session({"KUBECONFIG": path}, kopf_session.GpuJobStream())
    await made.aiohttp_session.close()
    return made.expiration


async def test_a_session_with_credentials_from_files_expires_soon(tmp_path):
    certificate, key = map(str, self_signed(tmp_path))
    token = tmp_path / "token"
    token.write_text("secret")
    pair = {"client-certificate": certificate, "client-key": key}
    for how in (
        {"certificate-authority": certificate},
        {"user": {"tokenFile": str(token)}},
        {"user": pair},
    ):
        until = await expiration(**how)
        assert until <= dt.datetime.now(dt.UTC) + kopf_session.FILE_CREDENTIALS_LIFETIME
    assert await expiration() is None
