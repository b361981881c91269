# SPDX-License-Identifier: Apache-2.0
"""The few endpoints of an API server that the extender writes to or asks, with faults."""

import contextlib
import tempfile

import msgspec
import yaml
from aiohttp import web

from gpupack_kube.client import Api

PODS = "/api/v1/namespaces/{namespace}/pods/{name}"


class ApiServer:
    """Holds pods; `fault` says what happens to the next Bindings, one each."""

    def __init__(self):
        self.pods = {}
        self.faults = []
        self.bindings = []
        self.bound = lambda: None
        """Called with each Binding that is sent."""
        self.reviews = 0
        self.users = {"operator-token": ("operator", ["gpupack-extender"])}
        self.allowed = {"operator"}

    def add(self, pod):
        self.pods[pod.metadata.name] = msgspec.to_builtins(pod)

    def app(self):
        app = web.Application()
        app.router.add_get(PODS, self.read)
        app.router.add_post(f"{PODS}/binding", self.bind)
        app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", self.review_token)
        app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self.review)
        return app

    async def read(self, request):
        pod = self.pods.get(request.match_info["name"])
        return web.json_response(pod) if pod else refused(404, "NotFound")

    async def bind(self, request):
        fault = self.faults.pop(0) if self.faults else "none"
        body = await request.json()
        self.bindings.append(body)
        self.bound()
        pod = self.pods.get(request.match_info["name"])
        if fault == "lost before":
            request.transport.abort()
        elif fault == "forbidden":
            return refused(403, "Forbidden")
        if fault in {"lost before", "forbidden"}:
            return web.Response()
        if pod is None or pod["metadata"]["uid"] != body["metadata"]["uid"]:
            return refused(409, "Conflict")
        if pod["spec"].get("nodeName"):
            return refused(409, "Conflict")
        pod["spec"]["nodeName"] = body["target"]["name"]
        pod["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
        if fault == "lost after":
            request.transport.abort()
        if fault == "timeout after":
            return refused(504, "Timeout")
        return web.json_response(
            {"kind": "Status", "metadata": {}, "status": "Success"}, status=201
        )

    async def review_token(self, request):
        self.reviews += 1
        spec = (await request.json())["spec"]
        name, audiences = self.users.get(spec["token"], ("", []))
        user = {"username": name, "groups": ["system:authenticated"]}
        status = {"authenticated": bool(name), "user": user, "audiences": audiences}
        return web.json_response({"status": status if name else {}}, status=201)

    async def review(self, request):
        self.reviews += 1
        spec = (await request.json())["spec"]
        return web.json_response({"status": {"allowed": spec["user"] in self.allowed}}, status=201)


def refused(status, reason):
    body = {"kind": "Status", "reason": reason, "message": f"{reason} by the test", "code": status}
    return web.json_response(body, status=status)


@contextlib.asynccontextmanager
async def serving(app):
    """Serve on the loopback; yields the address."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def connected(server):
    """An Api that talks to the server, by a kubeconfig."""
    async with serving(server.app()) as address:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": address}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {}}],
        }
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(config, file)
            file.flush()
            async with Api.connect({"KUBECONFIG": file.name}) as api:
                yield api
