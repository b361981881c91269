# SPDX-License-Identifier: Apache-2.0
"""A stand-in for cluster-autoscaler: `autoscaler_stand_in.py SECONDS ANSWER`, using KUBECONFIG.

It accepts each ProvisioningRequest, and answers it so many seconds later. For `Provisioned` it
makes simulated nodes (kwok) of eight A100s, with the GPUNodes that agents would write two seconds
later. The other answer is `Failed`. It removes a node when its request is gone and no pod runs
there, as an autoscaler removes unneeded nodes. It counts gpupack's whole GPUs only, no CPU and no
memory.
"""

import asyncio
import contextlib
import datetime as dt
import json
import os
import sys
import time
from typing import Any

import msgspec
from truth_fleet import A100, Shape, gpu_node, node_status

from gpupack_crds.kinds import GPUNODES
from gpupack_devcluster import kwok
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import AlreadyExists, KubeError, NotFound
from gpupack_kubeclient.objects import Object
from gpupack_kubeclient.resources import NODES, PODS, Resource

Json = dict[str, Any]

REQUEST_LABEL = "stand-in.devcluster/provisioning-request"
"""Annotation of a node: the UID of the request that it was made for."""
SHAPE = Shape(pool="grown", cpu=96, memory_gib=1024, gpus=(A100,))
LOOK_SECONDS = 0.25
AGENT_SECONDS = 2.0
"""Delay after which an agent would start on a new node and report its GPUs."""


class Request(Object, frozen=True):
    """A ProvisioningRequest as the API returns it."""

    spec: Json = {}
    status: Json = {}


class Template(Object, frozen=True):
    """A PodTemplate as the API returns it."""

    template: Json = {}


REQUESTS = Resource("/apis/autoscaling.x-k8s.io/v1", "provisioningrequests", Request)
TEMPLATES = Resource("/api/v1", "podtemplates", Template)


class StandIn:
    """A loop that looks at all requests."""

    def __init__(self, api: Api, seconds: float, answer: str) -> None:
        self._api, self._seconds, self._answer = api, seconds, answer
        self._accepted: dict[str, float] = {}
        self._agents: dict[str, float] = {}
        """Return when the agent of a new node reports its GPUs."""

    async def look(self) -> None:
        _, requests = await self._api.page(REQUESTS)
        for request in requests:
            await self._see(request)
        await self._report()
        await self._scale_down({request.metadata.uid for request in requests})

    async def _see(self, request: Request) -> None:
        known = {each["type"] for each in request.status.get("conditions", ())}
        if known & {"Provisioned", "Failed"}:
            return
        if "Accepted" not in known:
            await self._say(request, "Accepted", "a stand-in for cluster-autoscaler accepted it")
        accepted = self._accepted.setdefault(request.metadata.uid, time.monotonic())
        if time.monotonic() < accepted + self._seconds:
            return
        if self._answer == "Provisioned":
            await self._scale_up(request)
        await self._say(request, self._answer, "the stand-in is set to fail")

    async def _say(self, request: Request, kind: str, message: str) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": kind,
            "status": "True",
            "reason": "StandIn",
            "message": message,
            "lastTransitionTime": now,
        }
        others = [each for each in request.status.get("conditions", ()) if each["type"] != kind]
        body = {"status": {"conditions": [*others, condition]}}
        meta = request.metadata
        with contextlib.suppress(NotFound):
            await self._api.merge(
                REQUESTS, meta.name, body, namespace=meta.namespace, subresource="status"
            )

    async def _scale_up(self, request: Request) -> None:
        for index in range(await self._nodes_for(request)):
            name = f"grown-{request.metadata.uid[:8]}-{index}"
            node = kwok.node(index)
            node["metadata"]["name"] = name
            node["metadata"]["labels"] |= {
                "kubernetes.io/hostname": name,
                REQUEST_LABEL: request.metadata.uid,
            }
            node |= node_status(SHAPE)
            with contextlib.suppress(AlreadyExists):
                await self._api.create(NODES, node)
            self._agents[name] = time.monotonic() + AGENT_SECONDS

    async def _report(self) -> None:
        """Write what the agents of the new nodes would write."""
        for name in [name for name, at in self._agents.items() if at <= time.monotonic()]:
            inventory = gpu_node(name, SHAPE)
            with contextlib.suppress(AlreadyExists):
                await self._api.create(GPUNODES, inventory)
            status = {"status": inventory["status"]}
            await self._api.merge(GPUNODES, name, status, subresource="status")
            del self._agents[name]

    async def _nodes_for(self, request: Request) -> int:
        """Return how many nodes hold all pods by their whole GPUs."""
        nodes = 0
        for pods in request.spec["podSets"]:
            name, namespace = pods["podTemplateRef"]["name"], request.metadata.namespace
            found = await self._api.get(TEMPLATES, name, namespace=namespace)
            containers = found.template["spec"]["containers"]
            gpus = sum(
                int(each.get("resources", {}).get("limits", {}).get("gpupack.dev/gpu", 0))
                for each in containers
            )
            nodes += -(-pods["count"] // (SHAPE.number // gpus))
        return nodes

    async def _scale_down(self, open_requests: set[str]) -> None:
        _, nodes = await self._api.page(NODES, labelSelector=REQUEST_LABEL)
        unneeded = {
            node.metadata.name
            for node in nodes
            if node.metadata.labels[REQUEST_LABEL] not in open_requests
        }
        if not unneeded:
            return
        _, pods = await self._api.page(PODS)
        for name in unneeded - {pod.spec.node_name for pod in pods if not pod.finished}:
            self._agents.pop(name, None)
            for resource in (GPUNODES, NODES):
                with contextlib.suppress(NotFound):
                    await self._api.delete(resource, name)


async def main() -> None:
    """Look until the process is ended; retry while the cluster does not answer."""
    seconds, answer = float(sys.argv[1]), sys.argv[2]
    async with Api.connect({"KUBECONFIG": os.environ["KUBECONFIG"]}) as api:
        stand_in = StandIn(api, seconds, answer)
        print(json.dumps({"stand-in for cluster-autoscaler": answer}), flush=True)
        while True:
            try:
                await stand_in.look()
            except (KubeError, msgspec.MsgspecError) as error:
                print(f"{type(error).__name__}: {error}", flush=True)
            await asyncio.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    asyncio.run(main())
