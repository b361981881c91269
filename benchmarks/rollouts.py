# SPDX-License-Identifier: Apache-2.0
"""Measures how long placement stops during rollouts: `python benchmarks/rollouts.py [N]`.

On the running cluster, N times (5): the CRDs change, as in an upgrade of the chart, and all
components are restarted. At the same time a probe creates one pod after the other that requests a
share, and measures from its POST until it has a node. After the first rollout there is a quiet time
without GPUNode events. Prints one line of JSON: the longest waits in seconds, and the restarts of
containers, which must be 0.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time

from gpupack_kubeclient import client, errors
from gpupack_kubeclient.objects import Json, Object
from gpupack_kubeclient.resources import PODS, Resource

NAMESPACE = "default"
SYSTEM_NAMESPACE = "gpupack-system"
QUIET_SECONDS = 150
GIVE_UP_SECONDS = 300
PROBE_PAUSE_SECONDS = 1
APPS = "/apis/apps/v1"
WORKLOADS = (
    (Resource(APPS, "deployments", Object), "gpupack-operator"),
    (Resource(APPS, "deployments", Object), "gpupack-scheduler"),
    (Resource(APPS, "daemonsets", Object), "gpupack-agent"),
)
CRDS = Resource("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", Object)
KINDS = ("gpunodes", "gpujobs")


def pod(name: str) -> Json:
    """Return a pod that requests a small share and ends at once."""
    share = {
        "gpupack.dev/gpu-share": "1",
        "gpupack.dev/gpu-percent": "1",
        "gpupack.dev/gpu-memory": "64Mi",
    }
    worker = {
        "name": "worker",
        "image": "docker.io/gpupack/judge:dev",
        "command": ["true"],
        "resources": {"limits": share},
    }
    spec = {"schedulerName": "gpupack", "restartPolicy": "Never", "containers": [worker]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def seconds_to_place(api: client.Api, name: str) -> float:
    """Create a pod, wait until it has a node, and delete it; retry calls that fail."""
    began = time.monotonic()
    while time.monotonic() - began < GIVE_UP_SECONDS:
        with contextlib.suppress(errors.AlreadyExists, errors.Unreachable, errors.Refused):
            await api.create(PODS, pod(name), namespace=NAMESPACE)
        with contextlib.suppress(errors.Unreachable, errors.Refused):
            if (await api.get(PODS, name, namespace=NAMESPACE)).spec.node_name:
                break
        await asyncio.sleep(0.1)
    took = time.monotonic() - began
    with contextlib.suppress(errors.KubeError):
        await api.delete(PODS, name, namespace=NAMESPACE)
    return took


async def probe(api: client.Api, waits: list[float]) -> None:
    """Place one pod after the other until cancelled."""
    for number in itertools.count():
        waits.append(await seconds_to_place(api, f"rollout-probe-{number}"))
        await asyncio.sleep(PROBE_PAUSE_SECONDS)


async def roll_out(api: client.Api, number: int) -> None:
    """Change the CRDs, restart every component, and wait until the new pods run."""
    for kind in KINDS:
        # A categories entry is part of the spec: the API server rebuilds its cache of the kind.
        categories = {"spec": {"names": {"categories": ["gpupack", f"rollout-{number}"]}}}
        await api.merge(CRDS, f"{kind}.gpupack.dev", categories)
    mark = {"kubectl.kubernetes.io/restartedAt": f"rollout-{number}"}
    template = {"spec": {"template": {"metadata": {"annotations": mark}}}}
    for resource, name in WORKLOADS:
        await api.merge(resource, name, template, namespace=SYSTEM_NAMESPACE)
    for resource, name in WORKLOADS:
        kind = resource.plural.removesuffix("s")
        command = ("rollout", "status", f"{kind}/{name}", "-n", SYSTEM_NAMESPACE, "--timeout=300s")
        run = await asyncio.create_subprocess_exec("kubectl", *command, stdout=sys.stderr)
        await run.wait()


async def restarts(api: client.Api) -> int:
    """Return the restarts of all components' containers."""
    _, pods = await api.page(Resource("/api/v1", "pods", Restarted), namespace=SYSTEM_NAMESPACE)
    return sum(each.count for each in pods)


class Restarted(Object, frozen=True):
    """A pod with only its containers' restarts."""

    status: Json = {}

    @property
    def count(self) -> int:
        """Restarts of all its containers."""
        return sum(each["restartCount"] for each in self.status.get("containerStatuses", ()))


async def main(rollouts: int) -> None:
    """Roll out, probe, print."""
    async with client.Api.connect(os.environ) as api, asyncio.TaskGroup() as group:
        waits: list[float] = []
        probing = group.create_task(probe(api, waits))
        for number in range(rollouts):
            await roll_out(api, number)
            if number == 0:
                await asyncio.sleep(QUIET_SECONDS)
        await asyncio.sleep(PROBE_PAUSE_SECONDS)
        probing.cancel()
        longest = sorted((round(wait, 1) for wait in waits), reverse=True)[:5]
        found = {"rollouts": rollouts, "pods": len(waits), "longest_waits_seconds": longest}
        print(json.dumps(found | {"restarts": await restarts(api)}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
