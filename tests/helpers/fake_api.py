# SPDX-License-Identifier: Apache-2.0
"""An API server on loopback, for unit tests: objects by path, and faults that a real one will not
have on demand. What it is asked comes over HTTP, as in a cluster."""

import asyncio
import contextlib
import json
import pathlib
import tempfile

import yaml
from aiohttp import web

from gpupack_kubeclient.client import Api

VERSION = "resourceVersion"


def status(code, reason, message=""):
    """A refusal, as the API server writes one."""
    said = message or f"{reason} for a test"
    body = {"kind": "Status", "reason": reason, "message": said, "code": code}
    return web.json_response(body, status=code)


class ApiServer:
    """Objects by path, with resourceVersions and conflicts, and a note of every write.

    `down` answers 503; `silent` never answers; `refuse` maps a plural to what creating or patching
    one is answered; `forbidden` holds paths that no user may read; `slow` delays writes by their
    method, seconds; `date` is the header of every answer; `admit` is what admission makes of an
    object that is tried, or a refusal; `logs` has texts by path and container;
    `deleted_at_read` has paths of logs whose pods are deleted when their log is read.
    """

    def __init__(self):
        self.objects = {}
        self.writes = []
        self.dry_runs = []
        self.logs = {}
        self.deleted_at_read = set()
        self.down = False
        self.silent = False
        self.refuse = {}
        self.forbidden = set()
        self.slow = {}
        self.date = None
        self.admit = lambda tried: tried
        self._watchers = []

    def app(self):
        """Everything that is served."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        app.on_response_prepare.append(self._say_the_time)
        return app

    def put(self, path, item):
        """Store an object without a note."""
        self.objects[path] = item
        return item

    def add_pod(self, body):
        """Store a pod and notify the watchers."""
        meta = body["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        self.put(path, body)
        self._tell("ADDED", path, body)

    @property
    def watches(self):
        """Return how many watches have begun."""
        return len(self._watchers)

    def remove_pod(self, body):
        """Remove a pod and notify the watchers of its last state."""
        meta = body["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        del self.objects[path]
        self._tell("DELETED", path, body)

    def _tell(self, kind, path, body):
        for collection, events in self._watchers:
            if _is_in(path, collection):
                events.put_nowait({"type": kind, "object": body})

    def names(self, method):
        """The paths of all writes by a method, but for events."""
        return [path for verb, path in self.writes if verb == method and "/events" not in path]

    async def answer(self, request):
        if self.silent:
            await asyncio.sleep(60)
        if self.down:
            return status(503, "ServiceUnavailable", "down")
        if "watch" in request.query:
            return await self._watch(request)
        if request.method == "GET":
            return self.read(request.path, request.query.get("container"))
        plural = request.path.split("/")[-1 if request.method == "POST" else -2]
        if plural in self.refuse and request.method in {"POST", "PATCH"}:
            return status(*self.refuse[plural])
        body = await request.json()
        if request.query.get("dryRun"):
            self.dry_runs.append(body)
            answer = self.admit(body)
            return answer if isinstance(answer, web.Response) else web.json_response(answer)
        await asyncio.sleep(self.slow.get(request.method, 0))
        self.writes.append((request.method, request.path))
        return getattr(self, f"_{request.method.lower()}")(request.path, body)

    async def _say_the_time(self, _request, response):
        if self.date:
            response.headers["Date"] = self.date

    async def _watch(self, request):
        events = asyncio.Queue()
        self._watchers.append((request.path, events))
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            line = json.dumps(await events.get()) + "\n"
            await response.write(line.encode())

    def _log(self, path, container):
        if path in self.deleted_at_read:
            self.objects.pop(path.removesuffix("/log"), None)
            return status(404, "NotFound", f'pods "{path.split("/")[-2]}" not found')
        if container not in self.logs.get(path, {}):
            return status(400, "BadRequest", f"container {container} is waiting to start")
        return web.Response(text=f"2026-11-25T12:00:00.1Z {self.logs[path][container]}\n")

    def read(self, path, container):
        if container is not None:
            return self._log(path, container)
        if path in self.forbidden:
            return status(403, "Forbidden")
        if path in self.objects:
            return web.json_response(self.objects[path])
        if _is_object(path):
            return status(404, "NotFound")
        items = [item for name, item in self.objects.items() if _is_in(name, path)]
        return web.json_response({"metadata": {VERSION: "1"}, "items": items})

    def _post(self, path, body):
        if review := REVIEWS.get(path.rpartition("/")[2]):
            return web.json_response({"status": review(body["spec"])}, status=201)
        name = f"{path}/{body['metadata']['name']}"
        if name in self.objects:
            return status(409, "AlreadyExists")
        body["metadata"] |= {VERSION: "1", "uid": f"uid-of-{body['metadata']['name']}"}
        return web.json_response(self.put(name, body))

    def _put(self, path, body):
        name = path.removesuffix("/status")
        if name not in self.objects:
            return status(404, "NotFound")
        if body["metadata"].get(VERSION) != self.objects[name]["metadata"][VERSION]:
            return status(409, "Conflict")
        part = {"status": body["status"]} if path.endswith("/status") else body
        return web.json_response(self._changed(name, part))

    def _patch(self, path, body):
        name = path.removesuffix("/status")
        if name not in self.objects:
            return status(404, "NotFound")
        # As with the API server, an empty version is no condition.
        wanted = body.get("metadata", {}).get(VERSION)
        if wanted and wanted != self.objects[name]["metadata"].get(VERSION):
            return status(409, "Conflict")
        return web.json_response(self._changed(name, body))

    def _delete(self, path, _body):
        if path not in self.objects:
            return status(404, "NotFound")
        return web.json_response(self.objects.pop(path))

    def _changed(self, name, part):
        """Store an object of which these fields are new, in its next version."""
        current = self.objects[name]
        version = int(current["metadata"][VERSION]) + 1
        meta = current["metadata"] | part.get("metadata", {}) | {VERSION: str(version)}
        return self.put(name, current | part | {"metadata": meta})


def _token_status(spec):
    """One token is known, the scraper's of `scraping`."""
    user = {"username": "scraper"}
    return {"authenticated": True, "user": user} if spec["token"] == "scraper-token" else {}


def _access_status(spec):
    """He may get /metrics."""
    wanted = {"verb": "get", "path": "/metrics"}
    return {"allowed": spec["user"] == "scraper" and spec.get("nonResourceAttributes") == wanted}


REVIEWS = {"tokenreviews": _token_status, "subjectaccessreviews": _access_status}


def _is_object(path):
    """Return whether a path names an object, and not all objects of a kind."""
    words = _words(path)
    return len(words) % 2 == 0


def _is_in(name, collection):
    """Return whether an object is in a collection, which may be that of all namespaces."""
    parent = name.rpartition("/")[0]
    if "/namespaces/" in parent and "/namespaces/" not in collection:
        prefix, _, rest = parent.partition("/namespaces/")
        parent = f"{prefix}/{rest.partition('/')[2]}"
    return parent == collection


def _words(path):
    """Return what follows the group and its version."""
    parts = path.strip("/").split("/")
    return parts[2 if parts[0] == "api" else 3 :]


@contextlib.asynccontextmanager
async def serving(app, *, tls=None):
    """Serve on loopback, by the TLS context if there is one; yields the address."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        scheme, host = ("https", "localhost") if tls else ("http", "127.0.0.1")
        yield f"{scheme}://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def kubeconfig(address, *, user=None, **cluster):
    """A kubeconfig for the server at an address, with the token `secret`; yields its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": address} | cluster}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": user or {"token": "secret"}}],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "kubeconfig")
        path.write_text(yaml.safe_dump(config))
        yield str(path)


@contextlib.asynccontextmanager
async def connected(app, **environ):
    """An Api that talks to a server, as the parts connect; yields it and the kubeconfig's path."""
    async with serving(app) as address:
        with kubeconfig(address) as path:
            async with Api.connect({"KUBECONFIG": path} | environ) as api:
                yield api, path
