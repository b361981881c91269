# SPDX-License-Identifier: Apache-2.0
"""Measures the time from apply until all workers of a gang of 1,024 are bound, and its cost.

    sudo PYTHONPATH=tests/e2e:tests/truth .dev/venv/bin/python benchmarks/large_gang.py
        [--workers 1024] [--layout shared --layout separate] [--json FILE]

On the cluster of `make cluster-up`, with simulated nodes (kwok) of 8 GPUs: one GPUJob of so many
workers with one GPU each. Times are those at which a watch of this process shows things, in
seconds since apply. In layout `shared` the workers of a node share a pod, in `separate` each has
its own pod. The ratio is of the second to the first. Sizes are bytes of JSON as the API server
answers them, managedFields included. Memory is the most that each process has had resident since
it started (VmHWM), in MiB. Prints a line of JSON for each layout and one for all, and fails if a
gang took more than one attempt: other work on the machine starves the simulated nodes' heartbeats.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from harness import STATE, Kube, wait_for
from truth_fleet import H100, Shape
from truth_nodes import connected, simulated_nodes

from gpupack_crds import names
from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.settings import ClusterSettings, Paths
from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Event, decode
from gpupack_kubeclient.resources import PODS

NAMESPACE, NAME = "large-gang", "gang"
TIMEOUT_SECONDS = 900.0
PARTS = {
    "operator": "gpupack_operator",
    "extender": "gpupack_extender",
    "kube-scheduler": "kube-scheduler",
    "kube-apiserver": "kube-apiserver",
    "kube-controller-manager": "kube-controller-manager",
    "etcd": "etcd",
}
"""First words of the command line of each component's process."""

TOLERATED = (
    "kwok.x-k8s.io/node",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)

LAYOUTS = {"shared": False, "separate": True}
"""Values of podPerWorker."""

Json = dict[str, Any]


def gang(workers: int, *, pod_per_worker: bool) -> Json:
    """Return a job whose pods only simulated nodes take, and which survives late heartbeats.

    One process sends the heartbeats of all simulated nodes, and is late on a busy machine.
    """
    worker = {"name": "worker", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "nodeSelector": {"type": "kwok"},
        "tolerations": [{"key": key, "operator": "Exists"} for key in TOLERATED],
        "containers": [worker],
    }
    return {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUJob",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "workers": workers,
            "gpus": 1,
            "podPerWorker": pod_per_worker,
            "template": {"spec": spec},
        },
    }


class Seen:
    """Times at which the watch first showed each pod, and each pod with a node."""

    def __init__(self) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.workers: dict[str, int] = {}

    @property
    def bound_workers(self) -> int:
        """Number of workers with a node."""
        return sum(self.workers[uid] for uid in self.bound)

    def see(self, pod: objects.Pod) -> None:
        """Record an event."""
        now = time.monotonic()
        self.created.setdefault(pod.metadata.uid, now)
        self.workers[pod.metadata.uid] = sum(
            names.GPU in container.resources.limits for container in pod.spec.containers
        )
        if pod.spec.node_name:
            self.bound.setdefault(pod.metadata.uid, now)


async def measured(cluster: Cluster, kube: Kube, manifest: Json) -> Json:
    """Apply the gang and follow it until all workers are bound."""
    workers = manifest["spec"]["workers"]
    seen = Seen()
    async with connected(cluster) as api:
        listed, _ = await api.page(PODS, namespace=NAMESPACE)

        async def follow(version: str) -> None:
            while True:
                async for event in api.watch(PODS, namespace=NAMESPACE, resourceVersion=version):
                    if isinstance(event, Event) and event.type != "BOOKMARK":
                        pod = decode(event.object, objects.Pod)
                        version = pod.metadata.resource_version
                        seen.see(pod)

        following = asyncio.create_task(follow(listed.resource_version))
        begun = time.monotonic()
        await asyncio.to_thread(kube.insist, "create", "-f", "-", stdin=json.dumps(manifest))
        admitted: float | None = None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while seen.bound_workers < workers:
                await asyncio.sleep(0.5)
                job = await asyncio.to_thread(the_job, kube)
                if admitted is None and job.get("status", {}).get("placement"):
                    admitted = time.monotonic()
        following.cancel()
    created, bound = sorted(seen.created.values()), sorted(seen.bound.values())
    return {
        "placed_seconds": round((admitted or bound[-1]) - begun, 1),
        "first_pod_seconds": round(created[0] - begun, 1),
        "last_pod_seconds": round(created[-1] - begun, 1),
        "first_bound_seconds": round(bound[0] - begun, 1),
        "all_bound_seconds": round(bound[-1] - begun, 1),
        "pods_created": len(created),
    }


def the_job(kube: Kube) -> Json:
    """Return the GPUJob."""
    found: Json = json.loads(kube.insist("get", "gpujob", NAME, "-o", "json"))
    return found


def sizes(kube: Kube) -> Json:
    """Return the bytes of each object, and of the parts of the GPUJob's status."""

    def raw(path: str) -> bytes:
        answer: str = kube.insist("get", "--raw", path)
        return answer.encode()

    job = raw(f"/apis/gpupack.dev/v1beta1/namespaces/{NAMESPACE}/gpujobs/{NAME}")
    status = json.loads(job)["status"]
    (pod, *_) = kube.insist("get", "pods", "-o", "name", "--chunk-size=500").split()
    (batch_job, *others) = kube.insist("get", "jobs", "-o", "name").split()
    batch_job = batch_job.rpartition("/")[2]
    return {
        "gpujob_bytes": len(job),
        "placement_bytes": len(msgspec.json.encode(status.get("placement", []))),
        "jobs": 1 + len(others),
        "job_bytes": len(raw(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{batch_job}")),
        "pod_bytes": len(raw(f"/api/v1/namespaces/{NAMESPACE}/{pod.replace('pod/', 'pods/')}")),
    }


def memory_mib() -> dict[str, list[int]]:
    """Return the maximum resident memory of each process by component."""
    found: dict[str, list[int]] = {part: [] for part in PARTS}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")[:4]
            status = (process / "status").read_text()
        except OSError:
            continue
        command = b" ".join(words).decode(errors="replace")
        for part, mark in PARTS.items():
            if mark in command and "VmHWM:" in status:
                found[part].append(int(status.split("VmHWM:")[1].split()[0]) >> 10)
                break
    return {part: sorted(figures, reverse=True) for part, figures in found.items()}


def one(cluster: Cluster, kube: Kube, manifest: Json) -> Json:
    """Measure one gang in a namespace of its own, and remove it."""
    kube.insist("create", "namespace", NAMESPACE)
    try:
        times = asyncio.run(measured(cluster, kube, manifest))
        attempts = the_job(kube)["status"]["attempt"]
        return {**times, **sizes(kube), "attempts": attempts, "memory_mib": memory_mib()}
    finally:
        kube.kubectl("delete", "gpujob", NAME, "--wait=false")
        wait_for(
            lambda: not kube.insist("get", "pods", "-o", "name").strip(),
            seconds=TIMEOUT_SECONDS,
            what="the gang's pods are gone",
        )
        kube.kubectl("delete", "namespace", NAMESPACE)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1024)
    parser.add_argument("--layout", action="append", choices=tuple(LAYOUTS), help="Default: both.")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cluster = Cluster(ClusterSettings(paths=Paths(STATE)))
    kube = Kube(kubeconfig=cluster.kubeconfig, namespace=NAMESPACE)
    shape = Shape(pool="large", cpu=96, memory_gib=1024, gpus=(H100,))
    nodes = {f"kwok-{index + 1}": shape for index in range(-(-options.workers // H100.number))}
    before, found = memory_mib(), dict[str, Json]()
    with simulated_nodes(cluster, nodes):
        for layout in options.layout or LAYOUTS:
            manifest = gang(options.workers, pod_per_worker=LAYOUTS[layout])
            found[layout] = one(cluster, kube, manifest)
            print(json.dumps({layout: found[layout]}), flush=True)
    report: Json = {
        "workers": options.workers,
        "nodes": len(nodes),
        **{f"{layout}_pods": figures for layout, figures in found.items()},
        "memory_mib_before": before,
    }
    if len(found) == len(LAYOUTS):
        seconds = [found[layout]["all_bound_seconds"] for layout in LAYOUTS]
        report["ratio_all_bound"] = round(seconds[1] / seconds[0], 1)
    line = json.dumps(report)
    print(line)
    if options.json:
        options.json.write_text(line + "\n")
    sys.exit(any(each["attempts"] != 1 for each in found.values()))


if __name__ == "__main__":
    main()
