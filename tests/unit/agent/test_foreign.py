# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.foreign import ForeignDevices
from gpupack_agent.inventory.base import Findings
from gpupack_crds.gpunode import GpuDevice
from gpupack_crds.vendors import parse_vendors
from gpupack_kubeclient.errors import Unreachable

AMD, NPU, NVIDIA, OTHER = "amd.com/gpu", "huawei.com/npu", "nvidia.com/gpu", "example.org/gpu"
VENDORS = parse_vendors(
    json.dumps(
        {
            "nvidia": {"resources": [NVIDIA], "library": "nvml"},
            "amd": {"resources": [AMD], "library": "amdsmi", "modelLabels": ["amd"]},
            "huawei": {
                "resources": [NPU],
                "modelLabels": ["chip"],
                "models": [{"name": "910B3", "memoryMiB": 65536}],
            },
        }
    )
)
ADDRESSES = {"0000:c1:00.0", "0000:c6:00.0"}


class Node:
    """Labels that can be read or not, and a library."""

    def __init__(self, **labels):
        self.labels, self.library = labels, Library()
        self.foreign = ForeignDevices(VENDORS, self.read, {"amdsmi": self.library})

    async def read(self):
        if self.labels is None:
            raise Unreachable("no answer")
        return self.labels

    async def refresh(self, served, resources=(AMD, NPU, NVIDIA, OTHER)):
        self.foreign.update(served, [name for name in resources if name in served])
        await self.foreign.refresh()
        return {each.uuid: each.model for each in self.foreign.devices}


class Library:
    """AMD's, of two GPUs, or of none."""

    def __init__(self):
        self.devices = None

    async def scan(self, skip):
        assert skip == ()
        if self.devices is None:
            raise InventoryUnavailable("AMD SMI: no driver")
        return Findings(devices=self.devices)


def device(address, model, memory=196592):
    return GpuDevice(uuid=address, index=0, model=model, memory_mib=memory, pci_bus_id=address)


async def test_gpus_of_several_vendors_on_one_node_are_described_by_labels():
    node = Node(amd="MI300X", chip="910B3")
    found = await node.refresh({AMD: ADDRESSES, NPU: {"npu-0"}})
    assert found == {"0000:c1:00.0": "MI300X", "0000:c6:00.0": "MI300X", "npu-0": "910B3"}
    assert [each.resource for each in node.foreign.devices] == [AMD, AMD, NPU]


async def test_gpus_that_nvidias_driver_may_show_are_left_to_it():
    assert await Node(amd="MI300X").refresh({NVIDIA: {"GPU-0"}, OTHER: {"x"}}) == {}


async def test_the_vendors_library_describes_each_gpu():
    node = Node(amd="MI300X")
    node.library.devices = (device("0000:c1:00.0", "MI300X OAM"), device("0000:c6:00.0", "MI210"))
    found = await node.refresh({AMD: ADDRESSES})
    assert found == {"0000:c1:00.0": "MI300X OAM", "0000:c6:00.0": "MI210"}
    assert {each.resource for each in node.foreign.devices} == {AMD}


async def test_labels_count_if_the_vendors_library_fails():
    assert set((await Node(amd="MI300X").refresh({AMD: ADDRESSES})).values()) == {"MI300X"}


async def test_ids_that_the_library_does_not_know_are_described_by_labels():
    node = Node(amd="MI300X")
    node.library.devices = (device("0000:c1:00.0", "MI300X OAM"),)
    assert (await node.refresh({AMD: {"amdgpu_xcp_30"}})) == {"amdgpu_xcp_30": "MI300X"}


async def test_labels_that_cannot_be_read_and_a_plugin_that_restarts_change_nothing(caplog):
    node = Node(amd="MI300X")
    before = await node.refresh({AMD: ADDRESSES})
    node.labels = None
    assert await node.refresh({AMD: frozenset()}) == before
    assert "cannot read this node's labels" in caplog.text


async def test_without_labels_there_are_no_devices():
    assert await Node().refresh({AMD: ADDRESSES}) == {}


async def test_an_id_of_two_plugins_counts_once():
    assert await Node(amd="a", chip="b").refresh({AMD: {"0"}, NPU: {"0"}}) == {"0": "a"}


@pytest.mark.parametrize(("resource", "theirs"), [(AMD, True), (NVIDIA, False), (OTHER, False)])
def test_the_resource_shows_whether_a_gpu_is_of_another_vendor(resource, theirs):
    gpu = GpuDevice(uuid="0", index=0, model="m", memory_mib=1, resource=resource)
    assert Node().foreign.is_foreign(gpu) is theirs
