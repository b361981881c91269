# SPDX-License-Identifier: Apache-2.0
"""The kubelet's device plugin API, for one resource.

Allocate answers at once and from its argument alone: it has no time-out, it blocks the kubelet's
main loop, and it does not name the pod. PreStartContainer makes all decisions.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import grpc
import grpc.aio

from gpupack_agent.api import deviceplugin_pb2 as api
from gpupack_agent.api import deviceplugin_pb2_grpc as service
from gpupack_agent.device_tokens import DeviceToken, cdi_name
from gpupack_agent.errors import AgentError, CallAbandoned, StartRefused

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[object, object]

OPTIONS = api.DevicePluginOptions(pre_start_required=True)


class Prepare(Protocol):
    """The function that PreStartContainer calls, such as `PreStart.prepare`."""

    async def __call__(
        self, resource: str, tokens: frozenset[str], *, active: Callable[[], bool]
    ) -> object:
        """Prepare one container start; raises AgentError."""


class PluginServicer(service.DevicePluginServicer):
    """The server of one resource for the kubelet."""

    def __init__(self, resource: str, prepare: Prepare) -> None:
        self.resource = resource
        self.streams = 0
        """Number of open ListAndWatch calls; 0: the kubelet does not know this plugin."""
        self._prepare = prepare
        self.tokens: tuple[DeviceToken, ...] = ()
        self._changed = asyncio.Event()

    def publish(self, tokens: tuple[DeviceToken, ...]) -> None:
        """Send the device tokens to the kubelet, if they changed."""
        if tokens == self.tokens:
            return
        self.tokens = tokens
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def GetDevicePluginOptions(  # noqa: N802 - named by the API
        self, request: api.Empty, context: Context
    ) -> api.DevicePluginOptions:
        """Return the options, which request PreStartContainer calls."""
        del request, context
        return OPTIONS

    async def ListAndWatch(  # noqa: N802 - named by the API
        self, request: api.Empty, context: Context
    ) -> AsyncIterator[api.ListAndWatchResponse]:
        """Send all device tokens, now and whenever one changes."""
        del request, context
        self.streams += 1
        try:
            while True:
                changed = self._changed
                yield _list_response(self.tokens)
                await changed.wait()
        finally:
            self.streams -= 1

    async def Allocate(  # noqa: N802 - named by the API
        self, request: api.AllocateRequest, context: Context
    ) -> api.AllocateResponse:
        """Return the name of the CDI device whose spec PreStartContainer will write."""
        del context
        return api.AllocateResponse(
            container_responses=[
                api.ContainerAllocateResponse(
                    cdi_devices=[api.CDIDevice(name=cdi_name(container.devices_ids))]
                )
                for container in request.container_requests
            ]
        )

    async def PreStartContainer(  # noqa: N802 - named by the API
        self, request: api.PreStartContainerRequest, context: Context
    ) -> api.PreStartContainerResponse:
        """Give the container its devices, or refuse with a reason."""
        tokens = frozenset(request.devices_ids)
        try:
            await self._prepare(self.resource, tokens, active=lambda: not context.done())
        except CallAbandoned as error:
            log.info("%s", error)
        except StartRefused as error:
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, error)
        except AgentError as error:
            await self._refuse(context, grpc.StatusCode.UNAVAILABLE, error)
        return api.PreStartContainerResponse()

    async def _refuse(self, context: Context, code: grpc.StatusCode, error: AgentError) -> None:
        log.warning(
            "a container start is refused: %s (pods: %s)", error, ", ".join(error.pods) or "unknown"
        )
        await context.abort(code, f"gpupack: {error}")


def _list_response(tokens: tuple[DeviceToken, ...]) -> api.ListAndWatchResponse:
    return api.ListAndWatchResponse(
        devices=[
            api.Device(ID=token.id, health="Healthy" if token.healthy else "Unhealthy")
            for token in tokens
        ]
    )
