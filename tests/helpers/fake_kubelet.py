# SPDX-License-Identifier: Apache-2.0
"""A kubelet for device plugins, without pods of its own."""

import grpc
import grpc.aio

from gpupack_agent.api import deviceplugin_pb2 as plugin_api
from gpupack_agent.api import deviceplugin_pb2_grpc as plugin_service
from gpupack_agent.api import podresources_pb2 as resources_api
from gpupack_agent.api import podresources_pb2_grpc as resources_service
from gpupack_crds import names


class Kubelet(plugin_service.RegistrationServicer, resources_service.PodResourcesListerServicer):
    """The kubelet's side of both protocols, over real sockets, without pods of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.registrations = []
        self.tokens = {}
        """Devices by pod: a list, which is its worker's, or a dictionary by container."""
        self.resource = names.GPU
        """The resource that pods request; `resources` overrides it by pod."""
        self.resources = {}
        self.allocatable = {}
        self.gets = 0
        self.error = None
        self._server = None
        self._channels = []

    async def start(self):
        """Start as a kubelet does: all sockets in the folder go first."""
        for name in ("device-plugins", "pod-resources"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for path in (self.folder / "device-plugins").glob("*.sock"):
            path.unlink()
        self._server = grpc.aio.server()
        plugin_service.add_RegistrationServicer_to_server(self, self._server)
        resources_service.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.folder}/device-plugins/kubelet.sock")
        self._server.add_insecure_port(f"unix:{self.folder}/pod-resources/kubelet.sock")
        await self._server.start()

    async def stop(self):
        for channel in self._channels:
            await channel.close()
        self._channels = []
        await self._server.stop(None)

    def registered(self, resource):
        """The last registration of a resource, None before the first."""
        found = (each for each in reversed(self.registrations) if each.resource_name == resource)
        return next(found, None)

    def plugin(self, resource=names.GPU):
        """A client of the plugin that registered last for a resource."""
        path = self.folder / "device-plugins" / self.registered(resource).endpoint
        channel = grpc.aio.insecure_channel(f"unix:{path}")
        self._channels.append(channel)
        return plugin_service.DevicePluginStub(channel)

    async def Register(  # noqa: N802
        self, request, context
    ):
        del context
        self.registrations.append(request)
        await self.plugin(request.resource_name).GetDevicePluginOptions(plugin_api.Empty())
        return plugin_api.Empty()

    async def Get(  # noqa: N802
        self, request, context
    ):
        self.gets += 1
        if self.error is not None:
            await context.abort(*self.error)
        ids = self.tokens.get(request.pod_name)
        if ids is None:
            await context.abort(grpc.StatusCode.UNKNOWN, f"pod {request.pod_name} not found")
        resource = self.resources.get(request.pod_name, self.resource)
        by_container = ids if isinstance(ids, dict) else {"worker": ids}
        containers = [_container(name, resource, each) for name, each in by_container.items()]
        pod = resources_api.PodResources(name=request.pod_name, containers=containers)
        return resources_api.GetPodResourcesResponse(pod_resources=pod)

    async def GetAllocatableResources(  # noqa: N802
        self, request, context
    ):
        del request
        if self.error is not None:
            await context.abort(*self.error)
        devices = [
            resources_api.ContainerDevices(resource_name=resource, device_ids=[each])
            for resource, ids in self.allocatable.items()
            for each in ids
        ]
        return resources_api.AllocatableResourcesResponse(devices=devices)


def _container(name, resource, ids):
    devices = [
        resources_api.ContainerDevices(resource_name=resource, device_ids=[each]) for each in ids
    ]
    return resources_api.ContainerResources(name=name, devices=devices)
