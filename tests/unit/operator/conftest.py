# SPDX-License-Identifier: Apache-2.0
"""Builders of what the API server holds, with the times that the tests are about."""

import asyncio
import datetime as dt
import types

import msgspec
import pytest
from aiohttp import web

from gpupack_crds import names
from gpupack_crds.gpujob_status import GpuJobStatus, WorkerPlacement
from gpupack_crds.kinds import GpuJob
from gpupack_kube.client import Api
from gpupack_kube.objects import Job, Pod
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import Observation, Planned

START = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)
UID = "uid-of-train"


def at(seconds):
    """A moment so many seconds after the job was admitted."""
    return START + dt.timedelta(seconds=seconds)


def stamp(seconds):
    return at(seconds).isoformat().replace("+00:00", "Z")


def gpujob(*, status=None, deleted=None, generation=1, **spec):
    meta = {
        "name": "train",
        "namespace": "team",
        "uid": UID,
        "resourceVersion": "7",
        "generation": generation,
        "creationTimestamp": stamp(-1),
    }
    if deleted is not None:
        meta["deletionTimestamp"] = stamp(deleted)
    job = msgspec.convert(
        {"metadata": meta, "spec": spec if "share" in spec else {"gpus": 1, **spec}}, GpuJob
    )
    return msgspec.structs.replace(job, status=status or GpuJobStatus())


def placement(*nodes):
    device = {"uuid": "GPU-1", "percent": 100, "memoryMiB": 80000}
    return msgspec.convert(
        [{"worker": i, "node": node, "devices": [device]} for i, node in enumerate(nodes)],
        tuple[WorkerPlacement, ...],
    )


def owned_by(kind, name, uid):
    return {"kind": kind, "name": name, "uid": uid, "controller": True}


def job(*, attempt=1, conditions=(), deleted=None, suspend=False, deadline=None, started=0):
    meta = {
        "name": f"train-{attempt}",
        "namespace": "team",
        "uid": f"uid-of-train-{attempt}",
        "labels": {names.JOB_UID_LABEL: UID, names.ATTEMPT_LABEL: str(attempt)},
        "ownerReferences": [owned_by("GPUJob", "train", UID)],
    }
    if deleted is not None:
        meta["deletionTimestamp"] = stamp(deleted)
    found = [
        {"type": kind, "status": "True", "lastTransitionTime": stamp(when)}
        for kind, when in conditions
    ]
    spec = {"suspend": suspend} | ({} if deadline is None else {"activeDeadlineSeconds": deadline})
    status = {"conditions": found} | ({} if started is None else {"startTime": stamp(started)})
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Job)


def pod(
    index=0,
    *,
    attempt=1,
    phase="Running",
    node="a",
    bound=1,
    exit_code=None,
    ended=None,
    container_reason="Error",
    container="worker",
    message="",
    waiting=None,
    said="because",
    deleted=None,
    disrupted=None,
    reason="",
    created=0,
):
    """A worker pod; `deleted` is when its deletion was asked for, with 30 s of grace."""
    labels = {names.ATTEMPT_LABEL: str(attempt), names.INDEX_LABEL: str(index)}
    meta = {
        "name": f"train-{attempt}-{index}-x",
        "namespace": "team",
        "uid": f"pod-{attempt}-{index}",
        "creationTimestamp": stamp(created),
        "labels": labels,
        "ownerReferences": [owned_by("Job", f"train-{attempt}", f"uid-of-train-{attempt}")],
    }
    if deleted is not None:
        meta |= {"deletionTimestamp": stamp(deleted + 30), "deletionGracePeriodSeconds": 30}
    conditions = []
    if node:
        conditions.append(
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(bound)}
        )
    if disrupted:
        when, why = disrupted
        conditions.append(
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": why,
                "lastTransitionTime": stamp(when),
            }
        )
    state = {}
    if exit_code is not None:
        state["terminated"] = {
            "exitCode": exit_code,
            "reason": container_reason,
            "message": message,
            "finishedAt": stamp(ended or 0),
        }
    if waiting:
        state["waiting"] = {"reason": waiting, "message": said}
    statuses = [{"name": container, "state": state}] if state else []
    body = {
        "metadata": meta,
        "spec": {"nodeName": node},
        "status": {
            "phase": phase,
            "reason": reason,
            "conditions": conditions,
            "containerStatuses": statuses,
        },
    }
    return msgspec.convert(body, Pod)


def see(gpujob_, *, jobs=(), pods=(), now=10, answer=None, refusals=0, told=None, silent=()):
    return Observation(
        job=gpujob_,
        jobs=tuple(jobs),
        pods=tuple(pods),
        now=at(now),
        answer=answer,
        refusals=refusals,
        silent=frozenset(silent),
        told_at=None if told is None else at(told),
    )


def admitted(*, nodes=("a",), now=0, **spec):
    """A GPUJob whose first attempt was admitted at `now`."""
    fresh = gpujob(workers=len(nodes), **spec)
    decision = decide(see(fresh, answer=Planned(placement(*nodes), seconds=9), now=now))
    return msgspec.structs.replace(fresh, status=decision.status)


def after(job_, decision):
    """The GPUJob with the status that was decided."""
    return msgspec.structs.replace(job_, status=decision.status)


@pytest.fixture
def build():
    return types.SimpleNamespace(
        UID=UID,
        admitted=admitted,
        after=after,
        at=at,
        gpujob=gpujob,
        job=job,
        placement=placement,
        pod=pod,
        see=see,
        stamp=stamp,
    )


class ApiServer:
    """Objects by path, with resourceVersions and conflicts, and a note of every write."""

    def __init__(self):
        self.objects = {}
        self.writes = []
        self.refuse = {}
        self.slow = {}
        self.date = None

    async def say_the_time(self, _request, response):
        if self.date:
            response.headers["Date"] = self.date

    def put(self, path, item):
        """Store an object without a note."""
        self.objects[path] = item
        return item

    async def answer(self, request):
        if request.query.get("watch"):
            return await self._nothing_new(request)
        if request.method == "GET":
            return self._read(request.path)
        kind = request.path.rsplit("/", 2 if request.method == "PUT" else 1)[-1]
        if kind in self.refuse and request.method == "POST":
            code, reason = self.refuse[kind]
            return _status(code, reason)
        body = await request.json()
        await asyncio.sleep(self.slow.get(request.method, 0))
        self.writes.append((request.method, request.path))
        return getattr(self, f"_{request.method.lower()}")(request.path, body)

    async def _nothing_new(self, request):
        """A watch without an event."""
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(60)
        return response

    def names(self, method):
        return [path for verb, path in self.writes if verb == method and "/events" not in path]

    def _read(self, path):
        if path in self.objects:
            return web.json_response(self.objects[path])
        items = [item for name, item in self.objects.items() if name.rpartition("/")[0] == path]
        if items:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        return _status(404, "NotFound")

    def _post(self, path, body):
        name = f"{path}/{body['metadata']['name']}"
        if name in self.objects:
            return _status(409, "AlreadyExists")
        body["metadata"] |= {"resourceVersion": "1", "uid": f"uid-of-{body['metadata']['name']}"}
        return web.json_response(self.put(name, body))

    def _put(self, path, body):
        name = path.removesuffix("/status")
        if name not in self.objects:
            return _status(404, "NotFound")
        current = self.objects[name]
        version = current["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            return _status(409, "Conflict")
        meta = current["metadata"] | {"resourceVersion": str(int(version) + 1)}
        return web.json_response(
            self.put(name, current | {"metadata": meta, "status": body["status"]})
        )

    def _delete(self, path, _body):
        return web.json_response(self.objects.pop(path))


def _status(code, reason):
    body = {"kind": "Status", "reason": reason, "message": f"{reason} for a test", "code": code}
    return web.json_response(body, status=code)


@pytest.fixture
async def server(tmp_path):
    """An API server in memory, on loopback; `server.api` is connected to it."""
    found = ApiServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    app.on_response_prepare.append(found.say_the_time)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: x,"
        "contexts: [{name: x, context: {cluster: c, user: u}}],"
        f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}],"
        "users: [{name: u, user: {token: secret}}]}"
    )
    async with Api.connect({"KUBECONFIG": str(kubeconfig)}) as api:
        found.api = api
        yield found
    await runner.cleanup()
