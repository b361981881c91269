# SPDX-License-Identifier: Apache-2.0
"""What NVML answered on a host with two H100s behind an NVSwitch, and the same with faults."""

import itertools

import pynvml
import pytest
from graded import graded
from nvml_recording import SERIAL, h100s, uuid_of

from gpupack_agent.inventory import peers
from gpupack_agent.inventory.nvml import NvmlReader
from gpupack_agent.inventory.xids import XidWatcher
from gpupack_agent.known_devices import KnownDevices

LINKS = 18
FIRST, SECOND = uuid_of(0), uuid_of(1)


def reader(nvml, tmp_path):
    return NvmlReader(nvml, XidWatcher(nvml, notify=lambda: None), host_root=tmp_path)


def scan(nvml, tmp_path):
    return reader(nvml, tmp_path).scan()


def link(gpu, number):
    return f'nvmlDeviceGetNvLinkState["gpu{gpu}", {number}]'


def pair(one, other, capability):
    return f'nvmlDeviceGetP2PStatus["gpu{one}", "gpu{other}", {capability}]'


def test_two_gpus_are_read_as_they_were(tmp_path):
    found = scan(h100s(), tmp_path)
    assert [device.uuid for device in found.devices] == [FIRST, SECOND]
    assert {device.model for device in found.devices} == {"NVIDIA H100 80GB HBM3"}
    assert {device.memory_mib for device in found.devices} == {81559}
    assert [device.serial for device in found.devices] == [SERIAL, str(int(SERIAL) + 1)]
    assert [device.pci_bus_id for device in found.devices] == ["0000:00:06.0", "0000:00:07.0"]
    assert found.minors == {FIRST: 0, SECOND: 1}
    assert {device.health for device in graded(found)} == {"Healthy"}


@pytest.mark.parametrize("state", ["rest", "load"])
def test_all_links_are_up_and_the_pair_is_one_clique(tmp_path, state):
    found = scan(h100s(state), tmp_path)
    assert [device.nvlinks for device in found.devices] == [LINKS, LINKS]
    assert [device.nvlinks_down for device in found.devices] == [(), ()]
    assert [device.nvlink_clique for device in found.devices] == [0, 0]
    assert [device.p2p_clique for device in found.devices] == [0, 0]


def test_pairs_are_queried_because_the_far_end_of_each_link_is_a_switch():
    nvml = h100s()
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
    far = {
        nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, number)
        for handle, number in itertools.product(handles, range(LINKS))
    }
    assert far == {pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH}
    assert nvml.nvmlDeviceGetNvLinkRemotePciInfo(handles[0], 0).busId == "FFFFFFFF:FF:FF.0"


def test_the_matrix_of_pairs_is_symmetric_and_over_nvlink_but_not_over_pcie():
    nvml = h100s()
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]

    def states(one, other):
        capabilities = range(pynvml.NVML_P2P_CAPS_INDEX_UNKNOWN)
        return [nvml.nvmlDeviceGetP2PStatus(one, other, each) for each in capabilities]

    reported = states(*handles)
    assert reported == states(*reversed(handles))
    assert reported[pynvml.NVML_P2P_CAPS_INDEX_NVLINK] == pynvml.NVML_P2P_STATUS_OK
    assert reported[pynvml.NVML_P2P_CAPS_INDEX_PCI] != pynvml.NVML_P2P_STATUS_OK


def test_under_load_each_gpu_reports_its_processes_and_activity(tmp_path):
    read = reader(h100s("load"), tmp_path)
    read.scan()
    first, second = read.scan().facts
    (copies,) = first.processes
    assert copies.pid in {process.pid for process in second.processes}
    assert len(second.processes) == 2
    # The first copies to the second for a quarter of its time, and its cores wait.
    assert (first.load.utilization_percent, second.load.utilization_percent) == (75, 99)
    assert first.load.sm_active_percent == pytest.approx(52, abs=1)
    assert second.load.sm_active_percent == pytest.approx(81, abs=1)
    assert first.load.tensor_active_percent == pytest.approx(51, abs=1)
    assert first.load.dram_active_percent > 0
    assert first.load.throttled_by == second.load.throttled_by == {"SwPowerCap"}


def test_a_link_that_goes_down_degrades_its_gpu_alone(tmp_path):
    nvml = h100s("load")
    nvml.calls[link(1, 5)] = [0]
    first, second = graded(scan(nvml, tmp_path))
    assert (first.health, first.nvlinks_down) == ("Healthy", ())
    assert (second.health, second.causes) == ("Degraded", ("NvlinkDown",))
    assert (second.nvlinks, second.nvlinks_down) == (LINKS, (5,))
    # The switch leads around it.
    assert second.nvlink_clique == 0


def test_a_link_that_is_refused_keeps_the_others_numbers(tmp_path):
    nvml = h100s()
    nvml.calls[link(0, 2)] = [{"error": pynvml.NVML_ERROR_UNKNOWN}]
    nvml.calls[link(0, 9)] = [0]
    (first, _) = scan(nvml, tmp_path).devices
    assert (first.nvlinks, first.nvlinks_down) == (LINKS, (9,))


def test_gpus_without_their_fabric_are_no_clique_until_it_returns(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "REFRESH_SECONDS", 0.0)
    nvml = h100s()
    read = reader(nvml, tmp_path)
    for capability in range(pynvml.NVML_P2P_CAPS_INDEX_UNKNOWN):
        nvml.calls[pair(0, 1, capability)] = [pynvml.NVML_P2P_STATUS_GPU_NOT_SUPPORTED, 0]
    away, back = (read.scan().devices for _ in range(2))
    assert [device.nvlink_clique for device in away] == [None, None]
    assert [device.nvlink_clique for device in back] == [0, 0]


def test_gpus_that_are_counted_otherwise_after_a_boot_are_the_same_gpus(tmp_path):
    known = KnownDevices()
    known.update(scan(h100s(), tmp_path))
    before = known.devices
    known.update(scan(h100s(order=(1, 0)), tmp_path))
    assert [(each.index, each.uuid) for each in known.findings.devices] == [
        (0, SECOND),
        (1, FIRST),
    ]
    for uuid, device in known.devices.items():
        assert (device.health, device.cause) == ("Healthy", "")
        assert (device.serial, device.pci_bus_id) == (before[uuid].serial, before[uuid].pci_bus_id)
        assert device.nvlink_clique == 0
    assert known.findings.minors == {FIRST: 0, SECOND: 1}


def test_of_two_one_that_is_lost_fails_and_leaves_the_other_alone(tmp_path):
    nvml = h100s("load")
    read, known = reader(nvml, tmp_path), KnownDevices()
    known.update(read.scan())
    nvml.faults["*", 0] = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
    known.update(read.scan())
    lost, other = known.devices[FIRST], known.devices[SECOND]
    assert (lost.health, lost.causes) == ("Failed", ("GpuMissing",))
    assert (other.health, other.nvlink_clique) == ("Healthy", None)
    assert [facts.uuid for facts in known.findings.facts] == [SECOND]
    nvml.faults.clear()
    known.update(read.scan())
    assert [device.health for device in known.findings.devices] == ["Healthy", "Healthy"]
    assert [device.nvlink_clique for device in known.findings.devices] == [0, 0]
