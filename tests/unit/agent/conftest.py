# SPDX-License-Identifier: Apache-2.0
"""A node for the agent: cgroups as folders, kubelet and API server that speak their protocols."""

import contextlib
import dataclasses
import pathlib
import tempfile
import types

import grpc
import grpc.aio
import pytest
from fake_api import ApiServer, connected

from gpupack_agent.api import deviceplugin_pb2 as plugin_api
from gpupack_agent.api import deviceplugin_pb2_grpc as plugin_service
from gpupack_agent.api import podresources_pb2 as resources_api
from gpupack_agent.api import podresources_pb2_grpc as resources_service
from gpupack_agent.cgroups import CgroupState
from gpupack_agent.holders import NodeView, Record
from gpupack_agent.pods import Ask, PodView
from gpupack_agent.tickets import cdi_name
from gpupack_crds import names
from gpupack_crds.devices import DeviceShare, encode_devices
from gpupack_crds.gpunode import GpuDevice
from gpupack_kube.client import Api


def device(index=0, **fields):
    return GpuDevice(
        uuid=f"GPU-{index}", index=index, model="NVIDIA H200", memory_mib=1000, **fields
    )


def share(index=0, percent=100, memory_mib=1000):
    return DeviceShare(uuid=f"GPU-{index}", percent=percent, memory_mib=memory_mib)


def pod(name="a", *shares, **fields):
    """A pod with uid uid-NAME that asks for as many GPUs as it has shares."""
    annotation = encode_devices(shares) if shares else None
    asks = (Ask(container="worker", resource=names.GPU, count=max(len(shares), 1)),)
    given = {"annotation": annotation, "asks": asks} | fields
    return PodView(namespace="team", name=name, uid=f"uid-{name}", **given)


def record(name="a", *shares, tickets=("gpu-0",)):
    return Record(
        cdi_name=cdi_name(tickets),
        tickets=frozenset(tickets),
        uid=f"uid-{name}",
        namespace="team",
        name=name,
        container="worker",
        devices=shares or (share(),),
    )


def node(*, records=(), pods=(), cgroups=None, devices=None):
    """What the agent sees; every pod has a live cgroup unless `cgroups` says otherwise."""
    states = cgroups or {}
    return NodeView(
        records=tuple(records),
        pods={each.uid: each for each in pods},
        cgroup=lambda uid: states.get(uid, CgroupState.POPULATED),
        devices={each.uuid: each for each in devices or [device(index) for index in range(4)]},
    )


def pod_json(name="a", *shares, uid=None, phase="Pending", gpus=1):
    annotations = {names.DEVICES_ANNOTATION: encode_devices(shares)} if shares else {}
    return {
        "metadata": {
            "namespace": "team",
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": "1",
            "annotations": annotations,
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {"name": "worker", "resources": {"limits": {names.GPU: str(gpus), "cpu": "1"}}}
            ],
        },
        "status": {"phase": phase},
    }


@pytest.fixture(scope="session")
def build():
    """The builders above; test modules cannot import from here."""
    return types.SimpleNamespace(
        device=device, share=share, pod=pod, record=record, node=node, pod_json=pod_json
    )


@pytest.fixture
def folder():
    """A folder with a short path: a unix socket's path has 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="gp-") as path:
        yield pathlib.Path(path)


@dataclasses.dataclass
class Connection:
    server: ApiServer
    api: Api
    kubeconfig: str


@pytest.fixture
async def cluster():
    """An API server and an Api that is connected to it."""
    server = ApiServer()
    async with connected(server.app()) as (api, kubeconfig):
        yield Connection(server, api, kubeconfig)


class Kubelet(plugin_service.RegistrationServicer, resources_service.PodResourcesListerServicer):
    """The kubelet's side of both protocols, over real sockets, without pods of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.registrations = []
        self.tickets = {}
        self.resource = names.GPU
        """What pods ask for; `resources` tells of pods that ask for something else."""
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
        ids = self.tickets.get(request.pod_name)
        if ids is None:
            await context.abort(grpc.StatusCode.UNKNOWN, f"pod {request.pod_name} not found")
        resource = self.resources.get(request.pod_name, self.resource)
        devices = [
            resources_api.ContainerDevices(resource_name=resource, device_ids=[each])
            for each in ids
        ]
        container = resources_api.ContainerResources(name="worker", devices=devices)
        pod = resources_api.PodResources(name=request.pod_name, containers=[container])
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


@pytest.fixture
async def kubelet(folder):
    running = Kubelet(folder)
    await running.start()
    yield running
    with contextlib.suppress(Exception):
        await running.stop()


@dataclasses.dataclass
class CgroupTree:
    """A cgroup v2 tree with the cgroupfs driver."""

    root: pathlib.Path

    def add(self, name, *, populated=True):
        path = self.root / "kubepods/besteffort" / f"poduid-{name}"
        path.mkdir(parents=True, exist_ok=True)
        (path / "cgroup.events").write_text(f"populated {int(populated)}\nfrozen 0\n")

    def remove(self, name):
        path = self.root / "kubepods/besteffort" / f"poduid-{name}"
        (path / "cgroup.events").unlink()
        path.rmdir()


@pytest.fixture
def cgroups(tmp_path):
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    return CgroupTree(root)
