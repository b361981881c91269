# SPDX-License-Identifier: Apache-2.0
"""The kubelet's device plugin API, for one resource.

Allocate answers at once and from its argument alone: it has no time-out and holds up the kubelet's
main loop, and it does not say for which pod it is. All thought goes into PreStartContainer.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import grpc
import grpc.aio

from gpupack_agent.api import deviceplugin_pb2 as api
from gpupack_agent.api import deviceplugin_pb2_grpc as service
from gpupack_agent.errors import Abandoned, AgentError, StartRefused
from gpupack_agent.tickets import Ticket, cdi_name

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[object, object]

OPTIONS = api.DevicePluginOptions(pre_start_required=True)


class Prepare(Protocol):
    """What PreStartContainer does, such as `PreStart.prepare`."""

    async def __call__(
        self, resource: str, tickets: frozenset[str], *, active: Callable[[], bool]
    ) -> object:
        """Prepare one container start; raises AgentError."""


class PluginServicer(service.DevicePluginServicer):
    """Serves one resource to the kubelet."""

    def __init__(self, resource: str, prepare: Prepare) -> None:
        self.resource = resource
        self.streams = 0
        """How many ListAndWatch calls are open; with none the kubelet has forgotten us."""
        self._prepare = prepare
        self._tickets: tuple[Ticket, ...] = ()
        self._changed = asyncio.Event()

    def publish(self, tickets: tuple[Ticket, ...]) -> None:
        """Tell the kubelet what there is, if it changed."""
        if tickets == self._tickets:
            return
        self._tickets = tickets
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def GetDevicePluginOptions(  # noqa: N802 - named by the API
        self, request: api.Empty, context: Context
    ) -> api.DevicePluginOptions:
        """Ask for PreStartContainer calls."""
        del request, context
        return OPTIONS

    async def ListAndWatch(  # noqa: N802 - named by the API
        self, request: api.Empty, context: Context
    ) -> AsyncIterator[api.ListAndWatchResponse]:
        """Send all tickets, now and whenever one changes."""
        del request, context
        self.streams += 1
        try:
            while True:
                changed = self._changed
                yield _listed(self._tickets)
                await changed.wait()
        finally:
            self.streams -= 1

    async def Allocate(  # noqa: N802 - named by the API
        self, request: api.AllocateRequest, context: Context
    ) -> api.AllocateResponse:
        """Name the CDI device that PreStartContainer will fill."""
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
        """Give the container its devices, or say why not."""
        tickets = frozenset(request.devices_ids)
        try:
            await self._prepare(self.resource, tickets, active=lambda: not context.done())
        except Abandoned as error:
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


def _listed(tickets: tuple[Ticket, ...]) -> api.ListAndWatchResponse:
    return api.ListAndWatchResponse(
        devices=[
            api.Device(ID=ticket.id, health="Healthy" if ticket.healthy else "Unhealthy")
            for ticket in tickets
        ]
    )
