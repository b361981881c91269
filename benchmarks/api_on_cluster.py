# SPDX-License-Identifier: Apache-2.0
"""Measures the REST API's answer times on a real cluster with thousands of simulated nodes.

    sudo PYTHONPATH=tests/e2e:tests/helpers .dev/venv/bin/python benchmarks/api_on_cluster.py
        [--nodes 5000] [--pods 20000] [--waiting 240] [--calls 200]

On the cluster of `make cluster-up`, with so many nodes (kwok) of 8 GPUs. Pods of one GPU each are
created and placed by gpupack's scheduler; GPUJobs of a namespace whose quota is too small are
pending. Then a tenant calls the API over HTTPS with a token, one call after the other and below the
rate limit, while a pod starts or ends five times a second. So calls read state that has changed
since the last one; what-if includes the API server's dry run of the job, as for any user.

Prints a line of JSON: milliseconds from the request to the whole answer.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import ssl
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
from harness import STATE, SYSTEM_NAMESPACE, Kube
from rest_clients import trusted, viewer
from simulated_fleet import delete_all, fleet, for_all, gpujob, job_spec, pod_spec
from watched_pods import watched

from gpupack_crds import names
from gpupack_crds.kinds import GPUJOBS
from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.settings import ClusterSettings, Paths
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import PODS

NAMESPACE, WAITING = "api-on-cluster", "api-on-cluster-waits"
QUOTA = {
    "apiVersion": names.API_VERSION,
    "kind": "GPUQuota",
    "metadata": {"name": "default"},
    "spec": {"gpus": [{"model": "*", "nominal": 8, "borrowingLimit": 0}]},
}
ROLES = ("gpupack-edit", "view")
SERVER = f"gpupack-api.{SYSTEM_NAMESPACE}.svc"
CALLS_A_SECOND, CHANGES_A_SECOND = 12, 5
GPUS_OF_A_NODE = 8
ROOM_GPUS = 128
"""Free GPUs, for the what-if job that starts and for pods that start and end."""
TIMEOUT_SECONDS = 3600.0

Json = dict[str, Any]


def pod(name: str) -> Json:
    """Return a standalone pod of one GPU."""
    spec = {"schedulerName": names.SCHEDULER_NAME, **pod_spec(names.GPU, 1)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def question(namespace: str) -> tuple[str, str, Json]:
    """Return a call of what-if."""
    return "POST", "what-if", {"namespace": namespace, "job": job_spec(16, 4)}


CALLS = {
    "status": ("GET", "status", None),
    "nodes, 500 of them": ("GET", "nodes", None),
    "queue": ("GET", "queue", None),
    "what-if, it starts": question(NAMESPACE),
    "what-if, it waits": question(WAITING),
    "explain": ("GET", f"jobs/{WAITING}/waits-1/explain", None),
}


async def measure(cluster: Cluster, kube: Kube, options: argparse.Namespace) -> Json:
    """Fill the cluster, then call."""
    report: Json = {"nodes": options.nodes, "pods": options.pods, "waiting": options.waiting}
    async with Api.connect({"KUBECONFIG": str(cluster.kubeconfig)}) as api:
        await fill(api, options)
        with viewer(kube, *ROLES) as token:
            for role in ("gpupack-view", *ROLES):
                account = f"--serviceaccount={NAMESPACE}:viewer"
                waiting = ("-n", WAITING, f"--clusterrole={role}", account)
                kube.insist("create", "rolebinding", role, *waiting)
            async with client(cluster, token) as calling, changing(api):
                report["calls"] = {
                    name: await timed(calling, *call, count=options.calls)
                    for name, call in CALLS.items()
                }
    return report


async def fill(api: Api, options: argparse.Namespace) -> None:
    """Create pods that hold GPUs, and pending GPUJobs."""
    async with watched(api, NAMESPACE) as seen:
        await for_all(
            range(options.pods),
            lambda number: api.create(PODS, pod(f"holds-{number}"), namespace=NAMESPACE),
        )
        await seen.until(lambda: len(seen.bound) >= options.pods, seconds=TIMEOUT_SECONDS)
    await for_all(
        range(options.waiting),
        lambda number: api.create(
            GPUJOBS, gpujob(f"waits-{number}", 1 + number % 8, 8 - number % 3), namespace=WAITING
        ),
    )


@contextlib.asynccontextmanager
async def client(cluster: Cluster, token: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of one of the API's pods; it checks the certificate by the Service's name."""
    system = Kube(kubeconfig=cluster.kubeconfig, namespace=SYSTEM_NAMESPACE)
    chosen = ("-l", "app.kubernetes.io/component=api", "-o", "jsonpath={.items[0].status.podIP}")
    address = system.insist("get", "pods", *chosen)
    async with httpx.AsyncClient(
        base_url=f"https://{address}:8444/api/v1/gpu/",
        verify=ssl.create_default_context(cadata=trusted(system)),
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    ) as calling:
        yield calling


@contextlib.asynccontextmanager
async def changing(api: Api) -> AsyncIterator[None]:
    """Create or delete a pod repeatedly for as long as the context lasts."""

    async def change() -> None:
        for number in itertools.count():
            await api.create(PODS, pod(f"comes-{number}"), namespace=NAMESPACE)
            await asyncio.sleep(1 / CHANGES_A_SECOND)
            if number >= CHANGES_A_SECOND:
                gone = f"comes-{number - CHANGES_A_SECOND}"
                await api.delete(PODS, gone, namespace=NAMESPACE)
            await asyncio.sleep(1 / CHANGES_A_SECOND)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(change())
        yield
        task.cancel()


async def timed(
    calling: httpx.AsyncClient, method: str, path: str, body: Json | None, *, count: int
) -> Json:
    """Call repeatedly, one call after the other."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        answer = await calling.request(method, path, json=body, extensions={"sni_hostname": SERVER})
        taken.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
        await asyncio.sleep(max(0.0, 1 / CALLS_A_SECOND - taken[-1] / 1000))
    return {
        "first": round(taken[0], 1),
        "median": round(statistics.median(taken), 1),
        "p99": round(statistics.quantiles(taken, n=100)[-1], 1),
    }


def main() -> None:
    """Measure, and restore the cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--waiting", type=int, default=240)
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    if options.pods + ROOM_GPUS > options.nodes * GPUS_OF_A_NODE:
        parser.error(
            f"{options.nodes} nodes have {options.nodes * GPUS_OF_A_NODE} GPUs: at most "
            f"{options.nodes * GPUS_OF_A_NODE - ROOM_GPUS} pods leave GPUs for the what-if job"
        )
    cluster = Cluster(ClusterSettings(paths=Paths(STATE)))
    kube = Kube(kubeconfig=cluster.kubeconfig, namespace=NAMESPACE)
    with fleet(cluster, kube, options.nodes):
        for namespace in (NAMESPACE, WAITING):
            kube.insist("create", "namespace", namespace)
        Kube(kubeconfig=cluster.kubeconfig, namespace=WAITING).submit(QUOTA)
        try:
            print(json.dumps(asyncio.run(measure(cluster, kube, options))))
        finally:
            for kind, namespace in itertools.product((GPUJOBS, PODS), (WAITING, NAMESPACE)):
                delete_all(kube, kind.collection(namespace))
            kube.kubectl("delete", "namespace", NAMESPACE, WAITING)


if __name__ == "__main__":
    main()
