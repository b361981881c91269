# SPDX-License-Identifier: Apache-2.0
"""What NVML answered on an H200, at rest and under load; the same with faults put in."""

import pathlib
import sys

import pynvml
import pytest
import recorded_driver
from graded import graded
from nvml_recording import SERIAL, UUID, h200

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.driver import DriverInventory
from gpupack_agent.inventory.driver_root import DriverSearch
from gpupack_agent.inventory.nvml import NvmlReader
from gpupack_agent.inventory.readings import BOARD_SECONDS, FIELDS
from gpupack_agent.inventory.xids import XidWatcher

RECORDED = pathlib.Path(recorded_driver.__file__)
FIELD = "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"


def reader(nvml, tmp_path):
    return NvmlReader(nvml, XidWatcher(nvml, notify=lambda: None), host_root=tmp_path)


def scan(nvml, tmp_path):
    return reader(nvml, tmp_path).scan()


def error(code):
    return pynvml.NVMLError(code)


def test_an_h200_at_rest_is_read_as_it_was(tmp_path):
    found = scan(h200(), tmp_path)
    (device,), (facts,) = found.devices, found.facts
    assert (device.uuid, device.model, device.memory_mib) == (UUID, "NVIDIA H200", 143771)
    assert (graded(found)[0].health, found.cuda_version) == ("Healthy", "13.0")
    assert (device.architecture, device.pci_bus_id) == ("Hopper", "0000:00:06.0")
    assert (device.compute_mode, device.serial) == ("default", SERIAL)
    board = facts.board
    assert board.architecture == "Hopper"
    assert (board.pci_bus_id, board.cpus) == ("0000:00:06.0", tuple(range(16)))
    assert board.compute_mode == "default"
    assert (facts.load.utilization_percent, facts.load.memory_used_bytes) == (0, 0)
    assert (facts.processes, facts.load.throttled_by) == ((), frozenset())
    assert (facts.errors.recovery_action, facts.errors.remap_failed) == (0, False)


def test_a_busy_h200_reports_its_activity_and_throttle_reasons(tmp_path):
    nvml = reader(h200("load"), tmp_path)
    first, second = (nvml.scan().facts[0] for _ in range(2))
    assert first.load.utilization_percent == 100
    assert first.load.throttled_by == {"SwPowerCap"}
    assert first.load.power_watts == pytest.approx(692, abs=1)
    assert second.load.energy_joules - first.load.energy_joules == pytest.approx(1386, abs=1)
    (process,) = first.processes
    assert process.memory_bytes == 916455424
    assert process.memory_bytes <= first.load.memory_used_bytes


def test_facts_that_the_host_does_not_report_are_omitted(tmp_path):
    facts = scan(h200(), tmp_path).facts[0]
    assert (facts.errors.nvlink_crc, facts.links.nvlinks) == (None, ())
    assert facts.board.numa_node is None


def test_a_gpu_that_was_lost_hides_no_other(tmp_path):
    nvml = h200(gpus=3)
    nvml.faults["*", 1] = error(pynvml.NVML_ERROR_GPU_IS_LOST)
    assert [device.index for device in scan(nvml, tmp_path).devices] == [0, 2]


def test_a_driver_that_was_unloaded_leaves_no_inventory_and_is_read_when_it_is_back(tmp_path):
    nvml = h200()
    read = reader(nvml, tmp_path)
    nvml.faults["nvmlDeviceGetCount", None] = error(pynvml.NVML_ERROR_UNINITIALIZED)
    with pytest.raises(InventoryUnavailable, match="Uninitialized"):
        read.scan()
    nvml.faults.clear()
    assert len(read.scan().devices) == 1


def test_without_the_right_to_see_processes_the_rest_is_reported(tmp_path):
    nvml = h200("load")
    for call in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
        nvml.faults[call, 0] = error(pynvml.NVML_ERROR_NO_PERMISSION)
    facts = scan(nvml, tmp_path).facts[0]
    assert (facts.processes, facts.load.utilization_percent) == ((), 100)


@pytest.mark.parametrize("action", [1, 2])
def test_a_recovery_action_of_the_driver_fails_the_gpu(tmp_path, action):
    def answer_slowly(values):
        (of_action,) = (each for each in values if each.fieldId == getattr(pynvml, FIELD))
        of_action.value.uiVal = action
        return values

    nvml = h200()
    nvml.faults["nvmlDeviceGetFieldValues", 0] = answer_slowly
    assert graded(scan(nvml, tmp_path))[0].health == "Failed"


def test_fields_that_are_refused_are_unknown_and_not_zero(tmp_path):
    nvml = h200()
    nvml.faults["nvmlDeviceGetFieldValues", 0] = error(pynvml.NVML_ERROR_NOT_SUPPORTED)
    found = scan(nvml, tmp_path)
    assert found.facts[0].errors.remapped_uncorrected is None
    assert graded(found)[0].health == "Healthy"


def test_64_gpus_are_distinguished(tmp_path):
    found = scan(h200(gpus=64), tmp_path)
    assert len({device.uuid for device in found.devices}) == 64
    assert [facts.index for facts in found.facts] == list(range(64))


@pytest.fixture
def hanging(tmp_path):
    """The recorded host with three GPUs and a separate process; a call for one GPU hangs."""

    def of(call, index):
        run = (sys.executable, "-B", str(RECORDED), "load", "3", call, str(index))
        return DriverInventory(DriverSearch(tmp_path), scan_seconds=30, timeout_seconds=4, run=run)

    return of


CALLS = (
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetPowerUsage",
)


@pytest.mark.parametrize("call", CALLS)
async def test_a_reading_that_does_not_come_back_hides_no_other_gpu(hanging, call):
    inventory = hanging(call, 1)
    found = await inventory.scan()
    assert [facts.index for facts in found.facts] == [0, 2]
    assert found.facts[1].load.utilization_percent == 100
    await inventory.close()


def with_links(nvml, *states):
    """A recorded GPU with so many links; an error instead of a state is raised."""
    count = f"[{', '.join(str(getattr(pynvml, name)) for name in FIELDS.values())}]"
    key = f'nvmlDeviceGetFieldValues["gpu0", {count}]'
    for answer in nvml.calls[key]:
        (links,) = (
            each["struct"]
            for each in answer
            if each["struct"]["fieldId"] == pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT
        )
        links |= {"nvmlReturn": 0, "value": {"struct": {"uiVal": len(states)}}}
        links["valueType"] = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    for link, state in enumerate(states):
        nvml.calls[f'nvmlDeviceGetNvLinkState["gpu0", {link}]'] = [state]
    return nvml


def test_a_link_of_unknown_state_does_not_shift_the_numbers_of_the_others(tmp_path):
    unsupported = {"error": pynvml.NVML_ERROR_NOT_SUPPORTED}
    found = scan(with_links(h200(), 1, unsupported, 0, 1), tmp_path)
    (device,) = graded(found)
    assert (device.nvlinks, device.nvlinks_down) == (4, (2,))
    assert (device.health, device.causes) == ("Degraded", ("NvlinkDown",))
    assert device.cause == "NVLink 2 of 4 is down: check the links"


def test_a_compute_mode_that_an_administrator_changes_is_seen(tmp_path):
    nvml, now = h200(), [0.0]
    read = reader(nvml, tmp_path)
    read._readings._now = lambda: now[0]
    assert read.scan().devices[0].compute_mode == "default"
    nvml.calls['nvmlDeviceGetComputeMode["gpu0"]'] = [3]
    now[0] = BOARD_SECONDS
    assert read.scan().devices[0].compute_mode == "exclusive_process"


def test_a_call_that_fails_once_does_not_remove_a_gpu(tmp_path):
    nvml, failures = h200(gpus=2), [error(pynvml.NVML_ERROR_UNKNOWN)]

    def once(answer):
        if failures:
            raise failures.pop()
        return answer

    nvml.faults["nvmlDeviceGetUUID", 1] = once
    assert [device.index for device in scan(nvml, tmp_path).devices] == [0, 1]
    nvml.faults["nvmlDeviceGetUUID", 1] = error(pynvml.NVML_ERROR_UNKNOWN)
    assert [device.index for device in scan(nvml, tmp_path).devices] == [0]
