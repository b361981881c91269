# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the fake carries pynvml's names
"""NVML is the one thing that is faked here: there is no GPU where unit tests run."""

import asyncio
import contextlib
import queue
import types

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.nvml import NvmlInventory, nvlink_cliques, open_nvml
from gpupack_agent.inventory.xids import XidWatcher


class FakeNvml:
    """Handles are the GPUs' dictionaries; a GPU that lacks a key does not tell that fact."""

    class NVMLError(Exception):
        pass

    class NVMLError_Timeout(NVMLError):  # noqa: N801 - pynvml's own name
        pass

    NVML_SUCCESS = 0
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0
    nvmlEventTypeXidCriticalError = 8  # noqa: N815 - pynvml's own name
    nvmlEventTypeGpuRecoveryAction = 32768  # noqa: N815 - pynvml's own name

    def __init__(self, *gpus):
        self.gpus = gpus
        self.events = queue.Queue()

    def tell(self, gpu, fact):
        if fact not in gpu:
            raise self.NVMLError(f"{fact} is not told")
        return gpu[fact]

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlSystemGetDriverVersion(self):
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion(self):
        return 13010

    def nvmlDeviceGetHandleByIndex(self, index):
        self.tell(self.gpus[index], "uuid")
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu):
        return self.tell(gpu, "uuid")

    def nvmlDeviceGetName(self, gpu):
        return self.tell(gpu, "name")

    def nvmlDeviceGetMinorNumber(self, gpu):
        return self.tell(gpu, "minor")

    def nvmlDeviceGetMemoryInfo(self, gpu):
        return types.SimpleNamespace(total=self.tell(gpu, "mib") * 2**20)

    def nvmlDeviceGetMigMode(self, gpu):
        return [self.tell(gpu, "mig"), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu):
        return len(gpu["slices"]) + 1

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu, index):
        return self.tell(dict(enumerate(gpu["slices"])), index)

    def nvmlDeviceGetFieldValues(self, gpu, fields):
        assert fields == [230]
        value = types.SimpleNamespace(uiVal=self.tell(gpu, "action"))
        return [types.SimpleNamespace(nvmlReturn=0, value=value)]

    def nvmlDeviceGetPciInfo(self, gpu):
        return types.SimpleNamespace(busId=self.tell(gpu, "bus"))

    def nvmlDeviceGetP2PStatus(self, first, second, index):
        assert index == 2
        return 0 if self.tell(first, "island") == self.tell(second, "island") else 5

    def nvmlEventSetCreate(self):
        return self.events

    def nvmlDeviceGetSupportedEventTypes(self, gpu):
        return self.tell(gpu, "events")

    def nvmlDeviceRegisterEvents(self, gpu, mask, events):
        gpu["mask"] = mask

    def nvmlEventSetWait_v2(self, events, milliseconds):
        with contextlib.suppress(queue.Empty):
            return events.get(timeout=milliseconds / 1000)
        raise self.NVMLError_Timeout


def gpu(index, **facts):
    plain = {"uuid": f"GPU-{index}", "name": "NVIDIA H200", "minor": index, "mib": 143771}
    return plain | facts


def inventory(tmp_path, *gpus):
    nvml = FakeNvml(*gpus)
    return nvml, NvmlInventory(nvml, XidWatcher(nvml, scan_seconds=5), host_root=tmp_path)


def test_every_name_that_the_fake_has_is_pynvmls_own():
    names = {name for name in vars(FakeNvml) if name.lower().startswith("nvml")}
    assert len(names) > 20
    assert not [name for name in names if not hasattr(pynvml, name)]


def test_a_scan_tells_what_the_driver_tells(tmp_path):
    numa = tmp_path / "sys/bus/pci/devices/0000:1b:00.0/numa_node"
    numa.parent.mkdir(parents=True)
    numa.write_text("1\n")
    _, nvml = inventory(tmp_path, gpu(0, bus="00000000:1B:00.0", action=0))
    found = nvml.scan()
    (one,) = found.devices
    assert (one.uuid, one.model, one.memory_mib, one.numa_node) == (
        "GPU-0",
        "NVIDIA H200",
        143771,
        1,
    )
    assert (found.driver_version, found.cuda_version) == ("580.95.05", "13.1")
    assert not one.simulated


def test_a_gpu_that_fell_off_the_bus_hides_no_other(tmp_path):
    _, nvml = inventory(tmp_path, gpu(0), {}, gpu(2))
    assert [each.index for each in nvml.scan().devices] == [0, 2]


def test_a_recovery_action_makes_a_gpu_failed(tmp_path):
    _, nvml = inventory(tmp_path, gpu(0, action=2))
    assert nvml.scan().devices[0].health == "Failed"


def test_gpus_of_one_island_share_a_clique(tmp_path):
    gpus = [gpu(index, island=index // 2) for index in range(4)]
    _, nvml = inventory(tmp_path, *gpus)
    assert [each.nvlink_clique for each in nvml.scan().devices] == [0, 0, 2, 2]


def test_a_gpu_that_is_cut_into_slices_is_listed_as_its_slices(tmp_path):
    slices = [{"uuid": "MIG-1", "name": "H200 MIG 1g", "mib": 16384}]
    _, nvml = inventory(tmp_path, gpu(0, mig=1, slices=slices))
    (one,) = nvml.scan().devices
    assert (one.uuid, one.mig_parent, one.memory_mib) == ("MIG-1", "GPU-0", 16384)


def test_a_container_gets_the_device_nodes_of_its_gpus_alone(tmp_path):
    _, nvml = inventory(tmp_path, gpu(0, minor=4), gpu(1, minor=2))
    nvml.scan()
    assert nvml.injection(["GPU-1"]).device_nodes == ("/dev/nvidia2",)


def test_a_gpu_whose_device_node_the_driver_does_not_tell_is_named(tmp_path):
    _, nvml = inventory(tmp_path, {"uuid": "GPU-0", "name": "NVIDIA H200", "mib": 143771})
    nvml.scan()
    with pytest.raises(InventoryUnavailable, match="device node of GPU-0, GPU-7"):
        nvml.injection(["GPU-0", "GPU-7"])


def test_a_driver_without_events_is_scanned_all_the_same(tmp_path):
    class NoEvents(FakeNvml):
        def nvmlEventSetCreate(self):
            raise self.NVMLError("Not Supported")

    fake = NoEvents(gpu(0))
    nvml = NvmlInventory(fake, XidWatcher(fake, scan_seconds=5), host_root=tmp_path)
    assert len(nvml.scan().devices) == 1


def test_a_gpu_that_was_away_is_registered_for_events_again(tmp_path):
    fake, nvml = inventory(tmp_path, gpu(0, events=8))
    nvml.scan()
    back = fake.gpus
    del back[0]["mask"]
    for seen in (({},), back):
        fake.gpus = seen
        nvml.scan()
    assert back[0]["mask"] == 8


async def test_an_xid_wakes_the_agent_and_fails_the_gpu(tmp_path):
    fake, nvml = inventory(tmp_path, gpu(0, events=8))
    nvml.scan()
    waiting = asyncio.create_task(nvml.changed())
    await asyncio.sleep(0)
    fake.events.put(types.SimpleNamespace(eventType=8, eventData=79, device=fake.gpus[0]))
    await asyncio.wait_for(waiting, 30)
    (device,) = nvml.scan().devices
    assert "XID 79" in device.cause
    assert device.xids == (79,)
    assert fake.gpus[0]["mask"] == 8


async def test_an_xid_counts_until_somebody_says_that_the_gpu_was_mended(tmp_path):
    fake, nvml = inventory(tmp_path, gpu(0, events=8))
    nvml.scan()
    fake.events.put(types.SimpleNamespace(eventType=8, eventData=79, device=fake.gpus[0]))
    await asyncio.wait_for(nvml.changed(), 30)
    assert nvml.scan().devices[0].health == "Failed"
    waiting = asyncio.create_task(nvml.changed())
    await asyncio.sleep(0)
    nvml.forget()
    await asyncio.wait_for(waiting, 30)
    assert nvml.scan().devices[0].health == "Healthy"


def test_a_missing_driver_is_an_error_that_says_what_to_do(tmp_path):
    class NoDriver(FakeNvml):
        def nvmlInit(self):
            raise self.NVMLError("Driver Not Loaded")

    with pytest.raises(InventoryUnavailable, match="GPUPACK_INVENTORY=simulated"):
        open_nvml(NoDriver(), host_root=tmp_path)


def test_two_islands_are_named_after_their_lowest_gpu():
    pairs = {(0, 1), (2, 3)}
    assert nvlink_cliques(range(5), lambda low, high: (low, high) in pairs) == {
        0: 0,
        1: 0,
        2: 2,
        3: 2,
    }


def test_a_gpu_without_peers_is_in_no_clique():
    assert nvlink_cliques([0, 1], lambda _low, _high: False) == {}


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda p: p[0] < p[1])))
def test_linked_gpus_always_share_a_clique_named_after_a_member(pairs):
    found = nvlink_cliques(range(8), lambda low, high: (low, high) in pairs)
    assert all(found[low] == found[high] for low, high in pairs)
    assert all(found[name] == name and name <= member for member, name in found.items())
