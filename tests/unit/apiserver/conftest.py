# SPDX-License-Identifier: Apache-2.0
import asyncio
import types

import httpx
import msgspec
import pytest
from accounts import Accounts
from agent_stand_ins import agents, clock, round_of, serve  # noqa: F401 - fixtures
from aiohttp import web
from api_server import ApiServer
from extender_builders import gpu_node, node
from fake_api import connected, status

from gpupack_apiserver.app import application
from gpupack_apiserver.config import ConfigFile
from gpupack_apiserver.events.feed import Feed
from gpupack_apiserver.events.frames import Frames
from gpupack_apiserver.events.limits import StreamLimits
from gpupack_apiserver.history import History
from gpupack_apiserver.node_views import NodeViews
from gpupack_apiserver.questions import Questions
from gpupack_apiserver.quota_history import QuotaHistory
from gpupack_apiserver.read_model import ReadModel
from gpupack_apiserver.rights import Rights
from gpupack_apiserver.routes.parts import Parts
from gpupack_apiserver.settings import Placeholder, Settings
from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds.kinds import GpuQuota
from gpupack_scheduler.decisions import Decisions

LISTED = ("gpujobs", "gpuquotas", "gpureservations", "pods")
CLUSTER = "gpunodes/summary"


class Reviewer(ApiServer):
    """An API server that knows users by tokens; `rights` are (user, kind, namespace)."""

    def __init__(self):
        super().__init__()
        self.created_by, self.deleted_by, self.patched_by = [], [], []
        self.conflicts = 0
        self.config_maps = {}
        self.forbids_config_maps = self.fails_deletes = False
        self.on_created = lambda _: None
        self.asked_about = []
        """Specs of the received SubjectAccessReviews."""
        self.tried = []
        """Received dry runs: query and body."""
        self.users = {f"{name}-token": (name, []) for name in ("admin", "tenant", "other")}
        self.rights = {("admin", kind, "") for kind in LISTED}
        self.rights |= {(name, CLUSTER, "") for name in ("admin", "tenant", "other")}
        self.rights |= {("tenant", kind, "team") for kind in LISTED}

    async def review(self, request):
        self.reviews += 1
        spec = (await request.json())["spec"]
        self.asked_about.append(spec)
        if path := spec.get("nonResourceAttributes"):
            allowed = (spec["user"], path["verb"], path["path"]) in self.rights
            return web.json_response({"status": {"allowed": allowed}}, status=201)
        of = spec["resourceAttributes"]
        kind = "/".join(filter(None, (of["resource"], of.get("subresource"))))
        group = "" if kind == "pods" else "gpupack.dev"
        if of["verb"] in {"create", "update"}:
            kind = f"{of['verb']} {kind}"
        else:
            assert of["verb"] == ("get" if kind == CLUSTER else "list")
        assert of["group"] == group
        wanted = (spec["user"], kind, of.get("namespace", ""))
        allowed = wanted in self.rights or (*wanted[:2], "") in self.rights
        return web.json_response({"status": {"allowed": allowed}}, status=201)

    def app(self):
        app = super().app()
        path = "/apis/gpupack.dev/v1beta1/namespaces/{namespace}/gpujobs"
        app.router.add_post(path, self.create)
        app.router.add_delete(f"{path}/{{name}}", self.delete)
        app.router.add_patch(f"{path}/{{name}}", self.patch)
        config_maps = "/api/v1/namespaces/team/configmaps"
        app.router.add_get(f"{config_maps}/{{name}}", self.read_config_map)
        app.router.add_post(config_maps, self.create_config_map)
        return app

    async def read_config_map(self, request):
        found = self.config_maps.get(request.match_info["name"])
        return web.json_response(found) if found else status(404, "NotFound")

    async def create_config_map(self, request):
        if self.forbids_config_maps:
            return status(403, "Forbidden", "you may not create configmaps")
        body = await request.json()
        name = body["metadata"]["name"]
        if name in self.config_maps:
            return status(409, "AlreadyExists", f"configmaps {name} already exists")
        self.config_maps[name] = body
        return web.json_response(body, status=201)

    async def create(self, request):
        """Accept objects that the caller's token may create: only in its own namespace."""
        self.created_by.append(request.headers["authorization"])
        namespace, body = request.match_info["namespace"], await request.json()
        if namespace != "team":
            return status(403, "Forbidden", f"you may not create gpujobs in {namespace}")
        if request.query.get("dryRun") == "All":
            return self.judge(request, body)
        if body["metadata"]["name"] in self.jobs:
            return status(409, "AlreadyExists")
        body["metadata"] |= {"namespace": namespace, "uid": f"uid-{body['metadata']['name']}"}
        self.jobs[body["metadata"]["name"]] = body
        self.on_created(body)
        return web.json_response(body, status=201)

    def judge(self, request, body):
        """Answer a dry run: absent fields get defaults, and one field can be wrong."""
        self.tried.append((dict(request.query), body))
        if body["spec"].get("gpus") == 0:
            message = "Invalid value: 0: spec.gpus in body should be greater than or equal to 1"
            causes = [{"reason": "FieldValueInvalid", "message": message, "field": "spec.gpus"}]
            said = f'GPUJob.gpupack.dev "what-if-x" is invalid: spec.gpus: {message}'
            problem = {"kind": "Status", "reason": "Invalid", "code": 422, "message": said}
            return web.json_response(problem | {"details": {"causes": causes}}, status=422)
        if "gpu" in body["spec"]:
            said = (
                'GPUJob in version "v1beta1" cannot be handled as a GPUJob: strict decoding '
                'error: unknown field "spec.gpu"'
            )
            return status(400, "BadRequest", said)
        body["metadata"] |= {"name": "what-if-x7k2p", "namespace": "team", "uid": "uid-dry"}
        return web.json_response(body, status=201)

    async def read_job(self, request):
        return web.json_response(self.jobs[request.match_info["name"]])

    async def patch(self, request):
        """Merge the fields that callers write; the first `conflicts` writes are refused."""
        self.patched_by.append(request.headers["authorization"])
        if self.conflicts:
            self.conflicts -= 1
            return status(409, "Conflict")
        made, body = self.jobs[request.match_info["name"]], await request.json()
        annotations = body["metadata"]["annotations"].items()
        made["metadata"]["annotations"] = {
            key: value for key, value in annotations if value is not None
        }
        made["spec"] |= body["spec"]
        self.on_created(made)
        return web.json_response(made)

    async def delete(self, request):
        self.deleted_by.append(request.headers["authorization"])
        if self.fails_deletes:
            return status(500, "InternalError")
        self.jobs.pop(request.match_info["name"])
        return web.json_response({"kind": "Status"})


class Watched:
    """A watch with fresh or stale data."""

    def __init__(self):
        self.synced, self.age = asyncio.Event(), 0.0
        self.synced.set()

    def age_seconds(self):
        return self.age


@pytest.fixture
def accounts(tmp_path):
    made = Accounts(tmp_path / "cost.sqlite")
    yield made
    made.kill()


@pytest.fixture
def server():
    return Reviewer()


@pytest.fixture
def watched():
    return Watched()


@pytest.fixture
def model(watched):
    """Return a model of two nodes with four free H100 each."""
    made = ReadModel(Settings(decisions=Decisions(observed_resources=("nvidia.com/gpu",))))
    made.watches = {"nodes": watched}
    for name in ("a", "b"):
        made.ledger.nodes.upsert(node(name))
        made.ledger.gpus.upsert(gpu_node(name))
    return made


@pytest.fixture
def job(model):
    """Return a function that shows a GPUJob to the model."""

    def show(name, namespace="team", *, phase="Pending", labels=None, spec=None, **status):
        built = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{namespace}-{name}",
                "labels": labels or {},
                "creationTimestamp": "2026-11-24T10:00:00Z",
            },
            "spec": spec or {"gpus": 1, "workers": 2, "workload": {"name": "matmul"}},
            "status": {"phase": phase, **status},
        }
        model.jobs.upsert(msgspec.json.decode(msgspec.json.encode(built), type=ShownJob))

    return show


@pytest.fixture
def quota(model):
    def show(namespace, spec=None, **status):
        built = {
            "metadata": {"name": "default", "namespace": namespace, "uid": f"uid-{namespace}"},
            "spec": spec or {},
            "status": status,
        }
        model.quotas.quotas.upsert(msgspec.convert(built, GpuQuota))

    return show


@pytest.fixture
def quota_history(model):
    return QuotaHistory(lambda: None, seconds=10)


@pytest.fixture
def history(model):
    return History(lambda: None, seconds=10)


@pytest.fixture
def views(model):
    return NodeViews(model.ledger)


@pytest.fixture
def feed(model, views, history):
    return Feed(model, views, history)


@pytest.fixture
async def rights(server):
    async with connected(server.app()) as (api, _):
        yield Rights(api)


@pytest.fixture
def forget_rights(rights):
    """Return a function that empties the cache of permissions."""

    def forget():
        for kept in (rights._access._users, rights._access._rights, rights._seen):
            kept.clear()

    return forget


@pytest.fixture
def config_file():
    return ConfigFile(None, lambda _: None)


@pytest.fixture
async def parts(model, server, quota_history, history, views, *, feed, config_file):
    """Return the parts of the application; the API server is called over HTTP."""
    async with connected(server.app()) as (api, _):
        yield Parts(
            model=model,
            nodes=views,
            history=history,
            feed=feed,
            frames=Frames(feed, model, history),
            streams=StreamLimits(),
            config=config_file,
            quota_history=quota_history,
            rights=Rights(api),
            questions=Questions(model.queue_copy, is_known=lambda: True),
            api=api,
            placeholder=Placeholder("hold:1", "Always", ("mine",)),
        )


@pytest.fixture
async def call(parts):
    """Return a function that calls the API as a user."""
    transport = httpx.ASGITransport(application(parts))
    async with httpx.AsyncClient(transport=transport, base_url="https://api") as client:

        async def get(path, *, user="admin", body=None, content=None, method=None, **query):
            headers = {"Authorization": f"Bearer {user}-token"} if user else {}
            headers |= {"Idempotency-Key": query.pop("key")} if "key" in query else {}
            method = method or ("GET" if body is content is None else "POST")
            url, given = f"/api/v1/gpu/{path}", {} if body is None else {"json": body}
            given |= {} if content is None else {"content": content}
            answer = await client.request(method, url, headers=headers, params=query, **given)
            text = answer.headers.get("content-type")
            return types.SimpleNamespace(
                status=answer.status_code, type=text, headers=answer.headers, **_body(answer)
            )

        yield get


def _body(answer):
    is_json = "json" in answer.headers.get("content-type", "")
    return {"body": answer.json() if is_json else None, "text": answer.text}
