# SPDX-License-Identifier: Apache-2.0
"""Measures the REST API's answer times on a made-up cluster.

The routes are called in their own event loop, without TLS and without the API server's reviews,
whose answers are cached for ten seconds. Between calls pods start and end. GPUJobs of a dozen
namespaces with quotas are pending; the API server's dry run of a what-if job is left out.

    python benchmarks/api_answers.py [--nodes 5000] [--pods 20000] [--waiting 240]
"""

import argparse
import asyncio
import pathlib
import statistics
import sys
import time
from collections.abc import Collection

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/helpers"))

import httpx  # noqa: E402
import msgspec  # noqa: E402
from extender_builders import gpu_node, node, pod, whole  # noqa: E402

from gpupack_apiserver.app import application  # noqa: E402
from gpupack_apiserver.config import ConfigFile  # noqa: E402
from gpupack_apiserver.events.feed import Feed  # noqa: E402
from gpupack_apiserver.events.frames import NO_TICK, Frames, Scope  # noqa: E402
from gpupack_apiserver.events.limits import StreamLimits  # noqa: E402
from gpupack_apiserver.history import History  # noqa: E402
from gpupack_apiserver.node_views import NodeViews  # noqa: E402
from gpupack_apiserver.questions import Questions  # noqa: E402
from gpupack_apiserver.quota_history import QuotaHistory  # noqa: E402
from gpupack_apiserver.read_model import ReadModel  # noqa: E402
from gpupack_apiserver.routes.parts import Parts  # noqa: E402
from gpupack_apiserver.settings import Settings  # noqa: E402
from gpupack_apiserver.shown_job import ShownJob  # noqa: E402
from gpupack_crds.dry_run import JudgedJob  # noqa: E402
from gpupack_crds.kinds import GpuQuota  # noqa: E402
from gpupack_httpserver.access import Caller  # noqa: E402
from gpupack_httpserver.user import User  # noqa: E402
from gpupack_kubeclient import objects  # noqa: E402
from gpupack_scheduler.decisions import Decisions  # noqa: E402

TEAMS, KINDS = 12, 40
"""Namespaces with pending jobs, and different requests among these jobs."""


def question(namespace: str, **spec: object) -> tuple[str, str, dict[str, object]]:
    """Return a call of what-if."""
    job = {"workload": {"name": "matmul"}, **spec}
    return "POST", "what-if", {"namespace": namespace, "job": job}


CALLS = {
    "status": ("GET", "status", None),
    "nodes, 500 of them": ("GET", "nodes", None),
    "nodes, all": ("GET", "nodes?limit=5000", None),
    "validate, 64 GPUs": ("POST", "validate", {"gpu_count": 64, "distributed_training": True}),
    "what-if, it starts": question("team-0", workers=16, gpus=4),
    "what-if, it waits": question("team-1", workers=2, gpus=8),
    "what-if, its quota is used": question("team-2", workers=64, gpus=4),
    "what-if, others are stopped": question("promised", workers=2, gpus=8),
    "explain": ("GET", "jobs/team-1/waits-1/explain", None),
}


HEADERS = {"Authorization": "Bearer of-no-user"}


class Fresh:
    """Replacement for a watch: always fresh."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.synced.set()

    def age_seconds(self) -> float:
        """Return 0: the state is current."""
        return 0.0


class Everything:
    """Replacement for the access reviews: allows everything."""

    async def known(self, _: Caller) -> User:
        """Accept any token."""
        return User(username="benchmark")

    async def require_cluster(self, _: User) -> None:
        """Allow the whole cluster."""

    async def require_namespace(self, _: User, kind: str, namespace: str) -> None:
        """Allow any namespace."""

    async def among(self, _: User, __: str, namespaces: Collection[str]) -> Collection[str]:
        """Return all namespaces."""
        return namespaces


class Takes:
    """Replacement for the API server's dry run: accepts each job unchanged."""

    def on_behalf(self, _: str) -> "Takes":
        """Accept any token."""
        return self

    async def create(self, _: object, body: dict[str, object], **__: object) -> JudgedJob:
        """Return the job as a dry run does."""
        made = body | {"metadata": {"name": "what-if-x", "namespace": "team-0"}}
        return msgspec.json.decode(msgspec.json.encode(made), type=JudgedJob)


def filled(nodes: int, pods: int, waiting: int) -> ReadModel:
    """Return a model with so many nodes, pods and pending GPUJobs."""
    model = ReadModel(Settings(decisions=Decisions()))
    model.watches = {"all": Fresh()}
    for number in range(nodes):
        model.ledger.nodes.upsert(node(f"n{number}"))
        model.ledger.gpus.upsert(gpu_node(f"n{number}", gpus=8))
    for number in range(pods):
        model.ledger.pods.upsert(running(number, nodes))
    limit = {"model": "*", "nominal": 0, "borrowingLimit": 128}
    for number in range(TEAMS):
        model.quotas.quotas.upsert(quota(f"team-{number}", limit))
    model.quotas.quotas.upsert(quota("promised", {"model": "*", "nominal": 64}))
    for number in range(waiting):
        model.jobs.upsert(waits(number))
    return model


def quota(namespace: str, limit: dict[str, object]) -> GpuQuota:
    """Return a namespace's quota."""
    spec = {"gpus": [limit]}
    return msgspec.convert(
        {"metadata": {"name": "default", "namespace": namespace}, "spec": spec}, GpuQuota
    )


def waits(number: int) -> ShownJob:
    """Return a GPUJob that requests more GPUs of a node than are free on any."""
    kind = number % KINDS
    built = {
        "metadata": {
            "name": f"waits-{number}",
            "namespace": f"team-{number % TEAMS}",
            "uid": f"uid-{number}",
            "creationTimestamp": f"2026-11-24T{number // 60 % 24:02}:{number % 60:02}:00Z",
        },
        "spec": {
            "workers": 1 + kind % 8,
            "gpus": 6 + kind % 3,
            "activeDeadlineSeconds": 3600 + 60 * kind,
            "template": {
                "spec": {
                    "containers": [
                        {"name": "worker", "resources": {"requests": {"cpu": f"{1 + kind % 5}"}}}
                    ]
                }
            },
        },
        "status": {"phase": "Pending"},
    }
    return msgspec.json.decode(msgspec.json.encode(built), type=ShownJob)


def running(number: int, nodes: int) -> objects.Pod:
    """Return the pod of this number, which holds a GPU."""
    where = f"n{number % nodes}"
    found: objects.Pod = pod(f"p{number}", on=where, devices=whole(where, number // nodes))
    return found


async def measure(model: ReadModel, nodes: int, pods: int, repeats: int) -> None:
    """Call each route and print its times."""
    views, history = NodeViews(model.ledger), History(lambda: None, seconds=10)
    feed = Feed(model, views, history)
    parts = Parts(
        model=model,
        nodes=views,
        history=history,
        feed=feed,
        frames=Frames(feed, model, history),
        streams=StreamLimits(),
        config=ConfigFile(None, lambda _: None),
        quota_history=QuotaHistory(lambda: None, seconds=10),
        rights=Everything(),  # type: ignore[arg-type]
        questions=Questions(model.queue_copy, is_known=lambda: True),
        api=Takes(),  # type: ignore[arg-type]
    )
    transport = httpx.ASGITransport(application(parts))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="https://api") as client:
        for name, (method, path, body) in CALLS.items():
            taken, worked = [], []
            for number in range(repeats):
                changed = running(number % pods, nodes)
                (model.ledger.pods.remove if number % 2 else model.ledger.pods.upsert)(changed)
                began, busy = time.perf_counter(), time.process_time()
                answer = await client.request(
                    method, f"/api/v1/gpu/{path}", json=body, headers=HEADERS
                )
                taken.append((time.perf_counter() - began) * 1000)
                worked.append((time.process_time() - busy) * 1000)
                answer.raise_for_status()
            worst, work = (statistics.quantiles(each[1:], n=100)[-1] for each in (taken, worked))
            print(
                f"{name:27}  first {taken[0]:6.1f} ms  median {statistics.median(taken):6.1f} ms  "
                f"p99 {worst:6.1f} ms  processor's p99 {work:6.1f} ms  "
                f"{len(answer.content) / 1e6:.2f} MB"
            )
    measure_events(parts, nodes, pods, repeats)
    began = time.perf_counter()
    model.ledger.cluster.fork()
    print(f"a copy of the cluster's state: {(time.perf_counter() - began) * 1000:.1f} ms")


def measure_events(parts: Parts, nodes: int, pods: int, repeats: int) -> None:
    """Print what a second costs with a connected client: ten pods start or end in it."""
    feed, seen = parts.feed, parts.feed.join()
    everything = Scope(cluster=True, all_namespaces=True)
    for name, scope in (("a tick", None), ("and an event, compressed", everything)):
        taken = []
        for number in range(repeats):
            for each in range(10 * number, 10 * number + 10):
                changed = running(each % pods, nodes)
                ledger = parts.model.ledger.pods
                (ledger.remove if number % 2 else ledger.upsert)(changed)
            began = time.perf_counter()
            feed.tick()
            if scope and (frame := parts.frames.frame_for(scope, seen)):
                seen = feed.number
                for piece in range(len(frame)):
                    frame.deflated(piece)
            else:
                seen = feed.number
            taken.append((time.perf_counter() - began) * 1000)
        print(f"events, {name}: median {statistics.median(taken):.1f} ms a second")
    began = time.perf_counter()
    frame = parts.frames.frame_for(everything, NO_TICK)
    sent = [len(frame.deflated(piece)) for piece in range(len(frame))] if frame else []
    took = (time.perf_counter() - began) * 1000
    print(f"events, all there is, compressed: {took:.0f} ms in {len(sent)} pieces, ", end="")
    print(f"{sum(sent) / 1e6:.2f} MB")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--waiting", type=int, default=240)
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    print(
        f"{options.nodes} nodes with 8 GPUs, {options.pods} pods, {options.waiting} pending GPUJobs"
    )
    model = filled(options.nodes, options.pods, options.waiting)
    asyncio.run(measure(model, options.nodes, options.pods, options.repeats))


if __name__ == "__main__":
    main()
