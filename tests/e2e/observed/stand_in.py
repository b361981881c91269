# SPDX-License-Identifier: Apache-2.0
"""A stand-in for another device plugin: `stand_in.py RESOURCE ID...` hands out ids and no GPU.

It speaks the kubelet's API as NVIDIA's does, and ends when the kubelet removes its socket: its
container restarts and registers again.
"""

import asyncio
import pathlib
import signal
import sys

import grpc.aio

from gpupack_agent.api import deviceplugin_pb2 as api
from gpupack_agent.api import deviceplugin_pb2_grpc as service

FOLDER = pathlib.Path("/var/lib/kubelet/device-plugins")


class StandIn(service.DevicePluginServicer):
    """Serves a fixed list of healthy devices."""

    def __init__(self, ids):
        self._ids = ids

    async def GetDevicePluginOptions(self, request, context):  # noqa: N802 - named by the API
        """Ask for nothing."""
        del request, context
        return api.DevicePluginOptions()

    async def ListAndWatch(self, request, context):  # noqa: N802 - named by the API
        """List the devices, once: they never change."""
        del request, context
        devices = [api.Device(ID=each, health="Healthy") for each in self._ids]
        yield api.ListAndWatchResponse(devices=devices)
        await asyncio.Event().wait()

    async def Allocate(self, request, context):  # noqa: N802 - named by the API
        """Grant whatever the kubelet chose, and tell the container which that is."""
        del context
        granted = [
            api.ContainerAllocateResponse(envs={"STAND_IN_DEVICES": ",".join(each.devices_ids)})
            for each in request.container_requests
        ]
        return api.AllocateResponse(container_responses=granted)


async def serve(resource, ids):
    """Register and serve until the socket is gone."""
    socket = FOLDER / f"stand-in.{resource.replace('/', '.')}.sock"
    socket.unlink(missing_ok=True)
    server = grpc.aio.server()
    service.add_DevicePluginServicer_to_server(StandIn(ids), server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{FOLDER}/kubelet.sock") as channel:
            registration = service.RegistrationStub(channel)
            options = api.DevicePluginOptions()
            await registration.Register(
                api.RegisterRequest(
                    version="v1beta1", endpoint=socket.name, resource_name=resource, options=options
                )
            )
        while socket.exists():
            await asyncio.sleep(1)
    finally:
        await server.stop(grace=None)


async def main():
    """Serve until SIGTERM."""
    serving = asyncio.create_task(serve(sys.argv[1], sys.argv[2:]))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    await asyncio.wait([serving])


asyncio.run(main())
