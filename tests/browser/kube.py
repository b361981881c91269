# SPDX-License-Identifier: Apache-2.0
"""As much of a Kubernetes API server as gpupack-api asks: lists, watches, dry runs, rights."""

import asyncio
import contextlib
import itertools
import json

from aiohttp import web

GROUP = "gpupack.dev"
CLUSTER = ("get", GROUP, "gpunodes/summary")


class Kube:
    """Objects by collection and name.

    Attributes:
        users: who calls, by token.
        rights: (user, verb, group, resource, namespace); * for any.
    """

    def __init__(self):
        self.collections = {}
        self.users = {}
        self.rights = set()
        self._version = itertools.count(2)
        self._watchers = {}

    def put(self, collection, item):
        """Store an object and notify the watchers."""
        meta = item["metadata"]
        meta["resourceVersion"] = str(next(self._version))
        held = self.collections.setdefault(collection, {})
        key = (meta.get("namespace", ""), meta["name"])
        kind = "MODIFIED" if key in held else "ADDED"
        held[key] = item
        self._tell(collection, kind, item)

    def remove(self, collection, name, namespace=""):
        """Remove an object and notify the watchers."""
        item = self.collections[collection].pop((namespace, name))
        item["metadata"]["resourceVersion"] = str(next(self._version))
        self._tell(collection, "DELETED", item)

    def app(self):
        app = web.Application()
        reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
        app.router.add_post(reviews, self._review_token)
        access = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        app.router.add_post(access, self._review_access)
        jobs = f"/apis/{GROUP}/v1beta1/namespaces/{{namespace}}/gpujobs"
        app.router.add_post(jobs, self._try)
        app.router.add_get("/{path:.*}", self._read)
        return app

    async def _read(self, request):
        collection = request.path.rsplit("/", 1)[-1]
        if "watch" in request.query:
            return await self._watch(request, collection)
        items = sorted(self.collections.get(collection, {}).items())
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query.get("limit", len(items) or 1))
        meta = {"resourceVersion": "1"}
        if end < len(items):
            meta["continue"] = str(end)
        found = [item for _, item in items[start:end]]
        return web.json_response({"metadata": meta, "items": found})

    async def _watch(self, request, collection):
        lines = asyncio.Queue()
        watchers = self._watchers.setdefault(collection, [])
        watchers.append(lines)
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", "60"))):
                while True:
                    await response.write(await lines.get())
        watchers.remove(lines)
        return response

    def _tell(self, collection, kind, item):
        watchers = self._watchers.get(collection, ())
        if watchers:
            line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
            for lines in watchers:
                lines.put_nowait(line)

    async def _try(self, request):
        """A dry run, which is all that is asked for; nothing is checked and nothing stored."""
        assert request.query["dryRun"] == "All"
        built, namespace = await request.json(), request.match_info["namespace"]
        built["metadata"] |= {"name": "what-if-1", "namespace": namespace, "uid": "uid-tried"}
        return web.json_response(built, status=201)

    async def _review_token(self, request):
        spec = (await request.json())["spec"]
        name = self.users.get(spec["token"])
        user = {"username": name, "groups": ["system:authenticated"]}
        status = {"authenticated": True, "user": user} if name else {}
        return web.json_response({"status": status}, status=201)

    async def _review_access(self, request):
        spec = (await request.json())["spec"]
        of = spec["resourceAttributes"]
        resource = "/".join(filter(None, (of["resource"], of.get("subresource"))))
        asked = (of["verb"], of.get("group", ""), resource, of.get("namespace", ""))
        allowed = any(
            user == spec["user"] and all(map(_covers, right, asked)) for user, *right in self.rights
        )
        return web.json_response({"status": {"allowed": allowed}}, status=201)


def _covers(right, asked):
    return right in {"*", asked}
