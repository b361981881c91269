# SPDX-License-Identifier: Apache-2.0
"""A node for the agent: cgroups as folders, kubelet and API server that speak their protocols."""

import contextlib
import dataclasses
import pathlib
import tempfile
import types

import pytest
from fake_api import ApiServer, connected
from fake_kubelet import Kubelet

from gpupack_agent.cgroups import CgroupState
from gpupack_agent.device_tokens import cdi_name
from gpupack_agent.holders import NodeView, Record
from gpupack_agent.pods import DeviceRequest, PodView, Start
from gpupack_crds import names
from gpupack_crds.devices import DeviceShare, encode_devices
from gpupack_crds.gpunode import GpuDevice
from gpupack_kubeclient.client import Api


def device(index=0, **fields):
    return GpuDevice(
        uuid=f"GPU-{index}", index=index, model="NVIDIA H200", memory_mib=1000, **fields
    )


def share(index=0, percent=100, memory_mib=1000):
    return DeviceShare(uuid=f"GPU-{index}", percent=percent, memory_mib=memory_mib)


def pod(name="a", *shares, **fields):
    """Return a pod with UID uid-NAME that requests as many GPUs as it has shares."""
    annotation = encode_devices(shares) if shares else None
    requests = (DeviceRequest(container="worker", resource=names.GPU, count=max(len(shares), 1)),)
    given = {"annotation": annotation, "requests": requests} | fields
    return PodView(namespace="team", name=name, uid=f"uid-{name}", **given)


def requests(resource=names.GPU, **counts):
    """What several containers request, by name."""
    return tuple(
        DeviceRequest(container=name, resource=resource, count=n) for name, n in counts.items()
    )


def start(pod, resource=names.GPU, tokens=frozenset({"gpu-5"}), container="worker"):
    return Start(pod, container, resource, tokens)


def record(name="a", *shares, tokens=("gpu-0",), container="worker"):
    return Record(
        cdi_name=cdi_name(tokens),
        tokens=frozenset(tokens),
        uid=f"uid-{name}",
        namespace="team",
        name=name,
        container=container,
        devices=shares or (share(),),
    )


def node(*, records=(), pods=(), cgroups=None, devices=None):
    """Return the agent's view; every pod has a live cgroup unless `cgroups` differs."""
    states = cgroups or {}
    return NodeView(
        records=tuple(records),
        pods={each.uid: each for each in pods},
        cgroup=lambda uid: states.get(uid, CgroupState.POPULATED),
        devices={each.uuid: each for each in devices or [device(index) for index in range(4)]},
    )


def pod_json(name="a", *shares, uid=None, phase="Pending", gpus=1):
    """GPUs: of its one container, or of each by name."""
    by_container = gpus if isinstance(gpus, dict) else {"worker": gpus}
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
                {"name": each, "resources": {"limits": {names.GPU: str(count), "cpu": "1"}}}
                for each, count in by_container.items()
            ],
        },
        "status": {"phase": phase},
    }


@pytest.fixture(scope="session")
def build():
    """The builders above; test modules cannot import from here."""
    return types.SimpleNamespace(
        device=device,
        share=share,
        requests=requests,
        pod=pod,
        start=start,
        record=record,
        node=node,
        pod_json=pod_json,
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
    """An API server that knows Node node-1, and an Api that is connected to it."""
    server = ApiServer()
    server.put("/api/v1/nodes/node-1", {"metadata": {"name": "node-1", "uid": "uid-node-1"}})
    async with connected(server.app()) as (api, kubeconfig):
        yield Connection(server, api, kubeconfig)


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
    (root / "kubepods").mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    return CgroupTree(root)
