# SPDX-License-Identifier: Apache-2.0
"""The few endpoints of an API server that the extender writes to or asks, with faults."""

import msgspec
from aiohttp import web
from fake_api import status

JOBS = "/apis/gpupack.dev/v1beta1/namespaces/{namespace}/gpujobs/{name}"
PODS = "/api/v1/namespaces/{namespace}/pods/{name}"


class ApiServer:
    """Holds pods and GPUJobs; `fault` says what happens to the next Bindings, one each."""

    def __init__(self):
        self.pods = {}
        self.jobs = {}
        self.faults = []
        self.bindings = []
        self.patches = []
        self.evictions = []
        self.events = []
        self.statuses = []
        self.bound = lambda: None
        """Called with each Binding that is sent."""
        self.reviews = 0
        self.reviews_fail = False
        self.users = {"operator-token": ("operator", ["gpupack-extender"])}
        self.allowed = {"operator"}
        self.keys = None
        """Signing keys that it publishes; None: nothing."""
        self.key_reads = 0
        self.client_ca = None
        """CA of its clients (PEM) that it publishes; None: it publishes nothing."""
        self.config_maps_fail = False
        self.config_map_reads = 0

    def add(self, pod):
        self.pods[pod.metadata.name] = msgspec.to_builtins(pod)

    def app(self):
        app = web.Application()
        app.router.add_get(PODS, self.read)
        app.router.add_patch(PODS, self.patch)
        app.router.add_get(JOBS, self.read_job)
        app.router.add_post(f"{PODS}/binding", self.bind)
        app.router.add_post(f"{PODS}/eviction", self.evict)
        app.router.add_patch(f"{PODS}/status", self.patch_status)
        app.router.add_post("/apis/events.k8s.io/v1/namespaces/{namespace}/events", self.tell)
        app.router.add_get("/openid/v1/jwks", self.read_keys)
        configuration = "configmaps/extension-apiserver-authentication"
        app.router.add_get(
            f"/api/v1/namespaces/kube-system/{configuration}", self.read_authentication
        )
        app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", self.review_token)
        app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self.review)
        return app

    async def read(self, request):
        pod = self.pods.get(request.match_info["name"])
        return web.json_response(pod) if pod else status(404, "NotFound")

    async def read_job(self, request):
        job = self.jobs.get(request.match_info["name"])
        return web.json_response(msgspec.to_builtins(job)) if job else status(404, "NotFound")

    async def bind(self, request):
        fault = self.faults.pop(0) if self.faults else "none"
        body = await request.json()
        self.bindings.append(body)
        self.bound()
        pod = self.pods.get(request.match_info["name"])
        if fault == "lost before":
            request.transport.abort()
        elif fault == "forbidden":
            return status(403, "Forbidden")
        if fault in {"lost before", "forbidden"}:
            return web.Response()
        if pod is None or pod["metadata"]["uid"] != body["metadata"]["uid"]:
            return status(409, "Conflict")
        if pod["spec"].get("nodeName"):
            return status(409, "Conflict")
        pod["spec"]["nodeName"] = body["target"]["name"]
        pod["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
        if fault == "lost after":
            request.transport.abort()
        if fault == "timeout after":
            return status(504, "Timeout")
        return web.json_response(
            {"kind": "Status", "metadata": {}, "status": "Success"}, status=201
        )

    async def patch(self, request):
        """A merge patch that opens a pod's gate, and must name the pod's UID and version."""
        fault = self.faults.pop(0) if self.faults else "none"
        body = await request.json()
        self.patches.append(body)
        pod = self.pods.get(request.match_info["name"])
        if fault == "lost before":
            request.transport.abort()
            return web.Response()
        if fault == "forbidden":
            return status(403, "Forbidden")
        if pod is None:
            return status(404, "NotFound")
        given = {name: body["metadata"][name] for name in ("uid", "resourceVersion")}
        if any(pod["metadata"][name] != value for name, value in given.items()):
            return status(409, "Conflict")
        pod["metadata"]["resourceVersion"] += "+1"
        written = pod["metadata"].get("annotations", {}) | body["metadata"].get("annotations", {})
        kept = {name: value for name, value in written.items() if value is not None}
        pod["metadata"]["annotations"] = kept
        if "spec" in body:
            pod["spec"].pop("schedulingGates", None)
        if fault == "lost after":
            request.transport.abort()
            return web.Response()
        return web.json_response(pod)

    async def evict(self, request):
        self.evictions.append((await request.json())["deleteOptions"]["preconditions"]["uid"])
        fault = self.faults.pop(0) if self.faults else "none"
        if fault == "budget":
            return status(429, "TooManyRequests")
        if fault == "gone":
            return status(404, "NotFound")
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def tell(self, request):
        self.events.append(await request.json())
        return web.json_response({"metadata": {}}, status=201)

    async def patch_status(self, request):
        self.statuses.append(await request.json())
        return web.json_response(self.pods[request.match_info["name"]])

    async def read_keys(self, request):
        self.key_reads += 1
        if self.keys is None:
            return status(403, "Forbidden")
        if request.headers["Accept"] != "application/jwk-set+json":
            return status(406, "NotAcceptable")
        keys = [key.jwk() for key in self.keys]
        return web.json_response({"keys": keys}, content_type="application/jwk-set+json")

    async def read_authentication(self, _):
        self.config_map_reads += 1
        if self.config_maps_fail:
            return status(403, "Forbidden")
        if self.client_ca is None:
            return status(404, "NotFound")
        data = {"client-ca-file": self.client_ca, "requestheader-client-ca-file": "another"}
        return web.json_response({"metadata": {"name": "any"}, "data": data})

    async def review_token(self, request):
        self.reviews += 1
        if self.reviews_fail:
            return status(500, "InternalError")
        spec = (await request.json())["spec"]
        name, audiences = self.users.get(spec["token"], ("", []))
        user = {"username": name, "groups": ["system:authenticated"]}
        found = {"authenticated": bool(name), "user": user, "audiences": audiences}
        return web.json_response({"status": found if name else {}}, status=201)

    async def review(self, request):
        self.reviews += 1
        if self.reviews_fail:
            return status(500, "InternalError")
        spec = (await request.json())["spec"]
        return web.json_response({"status": {"allowed": spec["user"] in self.allowed}}, status=201)
