# SPDX-License-Identifier: Apache-2.0
"""The kubelet's PodResources: the device tokens of each pod, and the devices of each resource.

The agent never calls `List`, which has a side effect in the kubelet (see the .proto). The kubelet
allows all its clients together 100 calls a second and a burst of 10. The agent stays below that: it
spaces its calls.
"""

import asyncio
import contextlib
import pathlib
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Collection

import grpc
import grpc.aio

from gpupack_agent.api import podresources_pb2 as api
from gpupack_agent.api import podresources_pb2_grpc as service
from gpupack_agent.errors import AgentError, KubeletTooOld, KubeletUnavailable

TIMEOUT_SECONDS = 5.0
SPACING_SECONDS = 0.0125
"""The time between two calls: at most 80 calls a second."""

RECONNECT: list[tuple[str, int]] = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
"""A kubelet restarts within seconds; gRPC's default back-off goes up to two minutes."""


class PodResources:
    """The kubelet's PodResources service."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = service.PodResourcesListerStub(channel)
        self._lock = asyncio.Lock()

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, socket: pathlib.Path) -> AsyncGenerator["PodResources"]:
        """Connect to the kubelet, now or when it becomes available."""
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=RECONNECT) as channel:
            yield cls(channel)

    async def tokens(self, namespace: str, name: str, *resources: str) -> dict[str, frozenset[str]]:
        """Return device tokens of these resources by container; empty if the pod is unknown.

        Raises:
            KubeletUnavailable: the kubelet did not answer.
            KubeletTooOld: the kubelet has no Get.
        """
        request = api.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        async with self._rate_limited():
            try:
                answer = await self._stub.Get(request, timeout=TIMEOUT_SECONDS)
            except grpc.aio.AioRpcError as error:
                if _is_unknown_pod(error):
                    return {}
                raise _call_error("Get", error) from error
        return _by_container(answer, resources)

    async def served(self) -> dict[str, frozenset[str]]:
        """Return the IDs of the kubelet's healthy devices, held or not, by resource.

        Raises:
            KubeletUnavailable: the kubelet did not answer.
            KubeletTooOld: the kubelet has no GetAllocatableResources.
        """
        request = api.AllocatableResourcesRequest()
        async with self._rate_limited():
            try:
                answer = await self._stub.GetAllocatableResources(request, timeout=TIMEOUT_SECONDS)
            except grpc.aio.AioRpcError as error:
                raise _call_error("GetAllocatableResources", error) from error
        found: dict[str, set[str]] = defaultdict(set)
        for devices in answer.devices:
            found[devices.resource_name].update(devices.device_ids)
        return {resource: frozenset(ids) for resource, ids in found.items()}

    @contextlib.asynccontextmanager
    async def _rate_limited(self) -> AsyncIterator[None]:
        async with self._lock:
            try:
                yield
            finally:
                await asyncio.sleep(SPACING_SECONDS)


def _is_unknown_pod(error: grpc.aio.AioRpcError) -> bool:
    """Tell whether the kubelet knows no such pod: an untyped error there, with code UNKNOWN."""
    return error.code() is grpc.StatusCode.UNKNOWN and "not found" in (error.details() or "")


def _call_error(call: str, error: grpc.aio.AioRpcError) -> AgentError:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return KubeletTooOld(
            f"the kubelet has no PodResources {call}: use Kubernetes 1.36 or newer, or 1.34 or "
            "1.35 with the kubelet's feature gate KubeletPodResourcesGet on"
        )
    return KubeletUnavailable(
        f"the kubelet does not answer PodResources {call}: {error.code().name} {error.details()}"
    )


def _by_container(
    answer: api.GetPodResourcesResponse, resources: Collection[str]
) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for container in answer.pod_resources.containers:
        ids = frozenset(
            each
            for devices in container.devices
            if devices.resource_name in resources
            for each in devices.device_ids
        )
        if ids:
            found[container.name] = ids
    return found
