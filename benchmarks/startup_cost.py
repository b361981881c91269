# SPDX-License-Identifier: Apache-2.0
"""Measures what gpupack adds to a pod's start time: `python benchmarks/startup_cost.py [PAIRS]`.

Interleaved pairs on the cluster that is up: POST of a one-worker GPUJob until its container runs,
against POST of a plain Job of the same image; both by this client's clock, which watches the pods.
Prints both medians and their difference in seconds, taken in one run.
"""

import asyncio
import os
import pathlib
import statistics
import sys
import time
from typing import Any

from gpupack_crds.kinds import GPUJOBS
from gpupack_kubeclient import client, errors
from gpupack_kubeclient.objects import Json, Pod
from gpupack_kubeclient.resources import JOBS, PODS, Resource

ROOT = pathlib.Path(__file__).parents[1]
NAMESPACE = "default"
IMAGE = "docker.io/gpupack/judge:dev"
CONTAINER = {"name": "worker", "image": IMAGE, "command": ["sleep", "30"]}
GRACE_SECONDS = 1  # 0 would be a force deletion: the next pod of that GPU rightly waits for it
TIMEOUT_SECONDS = 60


def gpujob(name: str) -> Json:
    """Return a GPUJob of one worker."""
    template = {"spec": {"containers": [CONTAINER], "terminationGracePeriodSeconds": GRACE_SECONDS}}
    return {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUJob",
        "metadata": {"name": name},
        "spec": {"gpus": 1, "template": template},
    }


def plain_job(name: str) -> Json:
    """Return a Job of the same image that requests no GPU."""
    pod = {
        "containers": [CONTAINER],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": pod}},
    }


async def seconds_to_run(api: client.Api, name: str, *, gpu: bool) -> float:
    """Create a job, return the seconds until its container runs, and delete the job."""
    resource: Resource[Any] = GPUJOBS if gpu else JOBS
    manifest = gpujob(name) if gpu else plain_job(name)
    meta, _ = await api.page(PODS, namespace=NAMESPACE, limit="1")
    began = time.monotonic()
    await api.create(resource, manifest, namespace=NAMESPACE)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await running(api, name, since=meta.resource_version)
    took = time.monotonic() - began
    await api.delete(resource, name, namespace=NAMESPACE, propagation="Foreground")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await gone(api, name)
    return took


async def running(api: client.Api, name: str, *, since: str) -> None:
    """Return when a container of the job runs; the server ends a watch before long."""
    while True:
        async for event in api.watch(PODS, namespace=NAMESPACE, resourceVersion=since):
            if isinstance(event, client.Event) and event.type in {"ADDED", "MODIFIED"}:
                pod = client.decode(event.object, Pod)
                if pod.metadata.name.startswith(name) and any(
                    status.state.running for status in pod.status.container_statuses
                ):
                    return


async def gone(api: client.Api, name: str) -> None:
    """Return when no pod of the job is left."""
    while True:
        _, pods = await api.page(PODS, namespace=NAMESPACE)
        if not any(pod.metadata.name.startswith(name) for pod in pods):
            return
        await asyncio.sleep(0.2)


async def main(pairs: int) -> None:
    """Measure and print."""
    environ = {"KUBECONFIG": str(ROOT / ".dev" / "kubeconfig")} | dict(os.environ)
    ours: list[float] = []
    plain: list[float] = []
    async with client.Api.connect(environ) as api:
        for pair in range(pairs):
            stamp = f"{int(time.time()) % 100_000}-{pair}"
            try:
                ours.append(await seconds_to_run(api, f"cost-gpu-{stamp}", gpu=True))
                plain.append(await seconds_to_run(api, f"cost-job-{stamp}", gpu=False))
            except errors.KubeError as error:
                print(f"pair {pair}: {error}", file=sys.stderr)
    for name, took in (("GPUJob", ours), ("Job", plain)):
        print(
            f"{name:7} median {statistics.median(took):.3f} s, "
            f"min {min(took):.3f}, max {max(took):.3f}, n {len(took)}"
        )
    difference = statistics.median(ours) - statistics.median(plain)
    print(f"difference of medians {difference:.3f} s")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
