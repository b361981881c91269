# SPDX-License-Identifier: Apache-2.0
"""Measures how long kube-scheduler waits for a filter call, and how much of it is JSON and HTTP.

The extender's verbs run in their own process over a ledger of so many nodes of 8 GPUs, with pods of
1 and 4 GPUs and of shares. Every call has a new pod and all node names. The same run also measures
a server that decodes the same call and answers one name without a decision. Rounds are interleaved;
ratios are to that server.

    python benchmarks/filter_http.py [--nodes 100 1000 5000] [--pods 5000 20000] [--policies …]
"""

import argparse
import contextlib
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from extender_http import (
    Connection,
    call_seconds,
    connected,
    serve_uvicorn,
    starlette_app,
    with_msgspec_and_each_key_once,
)

from gpupack_crds import names
from gpupack_crds.devices import DeviceShare, encode_devices
from gpupack_crds.kinds import GpuNode
from gpupack_extender.filtering import Filter
from gpupack_extender.metrics import Metrics
from gpupack_extender.verbs import Verbs
from gpupack_kubeclient import objects
from gpupack_scheduler.decisions import Decisions
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.policies import Policies
from gpupack_scheduler.queueing.admissions import Admissions
from gpupack_scheduler.queueing.notifiers import Notifiers
from gpupack_scheduler.queueing.quotas import QuotaStores
from gpupack_scheduler.queueing.turns import Turns

GPUS = 8
MEMORY_MIB = 81_559
ASKS: tuple[dict[str, str], ...] = (
    {names.GPU: "1"},
    {names.GPU: "4"},
    {names.GPU_SHARE: "1", names.GPU_PERCENT: "30", names.GPU_MEMORY: "8Gi"},
    {names.GPU: "2"},
)


def node_name(index: int) -> str:
    """Return the name of a node."""
    return f"node-{index:05}"


def ledger_of(nodes: int, pods: int) -> Ledger:
    """Return a ledger as the watches would fill it."""
    ticks = itertools.count()
    ledger = Ledger(lambda: float(next(ticks)))
    for index in range(nodes):
        ledger.nodes.upsert(_node(index))
        ledger.gpus.upsert(_gpu_node(index))
    for index in range(pods):
        ledger.pods.upsert(_running(index, nodes))
    return ledger


def _node(index: int) -> objects.Node:
    resources = {"cpu": "128", "memory": "1Ti", "pods": "1000"}
    allocatable = resources | {names.GPU: "8", names.GPU_SHARE: "160"}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": node_name(index)}
    return msgspec.convert({"metadata": metadata, "status": status}, objects.Node)


def _uuid(index: int, gpu: int) -> str:
    return f"GPU-{index:05}-{gpu}"


def _gpu_node(index: int) -> GpuNode:
    devices = [
        {
            "uuid": _uuid(index, gpu),
            "index": gpu,
            "model": "NVIDIA H100 80GB HBM3" if index % 4 else "NVIDIA A100-SXM4-80GB",
            "memoryMiB": MEMORY_MIB,
            "health": "Healthy",
        }
        for gpu in range(GPUS)
    ]
    status = {"mode": "owned", "devices": devices}
    return msgspec.convert({"metadata": {"name": node_name(index)}, "status": status}, GpuNode)


def _running(index: int, nodes: int) -> objects.Pod:
    """Return a pod with a share of 20 percent: five fill a GPU before the next GPU is used."""
    slot, node = divmod(index, nodes)
    held = DeviceShare(uuid=_uuid(node, slot // 5 % GPUS), percent=20, memory_mib=8192)
    limits = {names.GPU_SHARE: "1", names.GPU_PERCENT: "20", names.GPU_MEMORY: "8Gi"}
    built = _pod(f"running-{index}", limits)
    built["metadata"]["annotations"] = {names.DEVICES_ANNOTATION: encode_devices((held,))}
    built["spec"]["nodeName"] = node_name(node)
    built["status"] = {"phase": "Running"}
    return msgspec.convert(built, objects.Pod)


def _pod(name: str, limits: dict[str, str]) -> dict[str, Any]:
    """Return a pod of usual size: the extender needs little of it."""
    container = {
        "name": "worker",
        "image": "registry.example/team/train:1",
        "env": [{"name": f"VARIABLE_{index}", "value": "x" * 40} for index in range(20)],
        "resources": {"limits": {**limits, "cpu": "8", "memory": "64Gi"}},
    }
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "managedFields": [{"fieldsV1": {f"f:{index}": {} for index in range(100)}}],
    }
    return {"metadata": metadata, "spec": {"containers": [container]}}


def requests(nodes: int) -> Iterator[bytes]:
    """Yield filter calls without end, each with a new pod."""
    all_names = [node_name(index) for index in range(nodes)]
    for number, limits in zip(itertools.count(), itertools.cycle(ASKS), strict=False):
        args = {"Pod": _pod(f"asking-{number}", limits), "Nodes": None, "NodeNames": all_names}
        body = json.dumps(args, separators=(",", ":"))
        head = (
            "POST /scheduler/filter HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        yield (head + body).encode()


class Ready:
    """State of a scheduler that leads and whose watches are fresh."""

    def require_to_answer(self) -> None:
        """Raise nothing."""

    def require_to_decide(self) -> None:
        """Raise nothing."""


def verbs_app(ledger: Ledger, policy: str) -> Any:
    """Return the extender's own application; it frees what it assumed before the next call."""
    ready: Any = Ready()
    unused: Any = None
    decisions = Decisions(policy=policy, assume_seconds=0.5)
    policies = Policies(policy, ledger.learner, known=ledger.learner.take_forecast())
    policies.named()
    admissions = Admissions(
        ledger,
        policies,
        Notifiers(Turns(), gates=unused),
        quotas=QuotaStores(),
        now=time.time,
        decisions=decisions,
    )
    verbs = Verbs(
        filter_pod=Filter(
            ledger,
            policies,
            decisions,
            ready.require_to_decide,
            unused,
            admissions,
        ),
        prioritize_pod=unused,
        binder=unused,
        readiness=ready,
        metrics=Metrics(),
    )
    return verbs.app()


def measure(
    ledger: Ledger, nodes: int, policies: list[str], *, rounds: int, calls: int
) -> dict[str, list[float]]:
    """Return the milliseconds of every call by policy; `none` decides nothing."""
    servers: dict[str, Callable[[Any], Any]] = {"none": starlette_app}
    for policy in policies:
        servers[policy] = lambda _, policy=policy: verbs_app(ledger, policy)
    with contextlib.ExitStack() as stack:
        connections = {
            name: stack.enter_context(
                connected(serve_uvicorn(build, http=Connection), with_msgspec_and_each_key_once)
            )
            for name, build in servers.items()
        }
        samples: dict[str, list[float]] = {name: [] for name in connections}
        bodies = requests(nodes)
        for _ in range(rounds):
            for name, connection in connections.items():
                for _ in range(calls):
                    samples[name].append(call_seconds(connection, next(bodies)) * 1e3)
    return {name: times[len(ASKS) :] for name, times in samples.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 5000, 20_000])
    parser.add_argument("--pods", type=int, nargs="+", default=[5000, 20_000])
    parser.add_argument(
        "--policies", nargs="+", default=["first-fit", "best-fit", "fgd", "default"]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=100)
    options = parser.parse_args()
    for nodes, pods in itertools.product(options.nodes, options.pods):
        if pods > nodes * GPUS * 5:
            continue
        ledger = ledger_of(nodes, pods)
        samples = measure(
            ledger, nodes, options.policies, rounds=options.rounds, calls=options.calls
        )
        base = statistics.median(samples["none"])
        print(f"{nodes} nodes, {pods} pods, {len(next(requests(nodes))) // 1024} KiB a call")
        for name, times in samples.items():
            cuts = statistics.quantiles(times, n=100)
            print(
                f"  {name:16} p50 {cuts[49]:6.2f} ms  p99 {cuts[98]:6.2f} ms  "
                f"ratio {cuts[49] / base:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
