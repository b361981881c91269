# SPDX-License-Identifier: Apache-2.0
"""A driver that hangs, ends or returns, queried by a real process."""

import asyncio
import json
import os
import pathlib
import signal
import sys
import types

import faked_driver
import pytest
from fake_nvml import gpu, mig_slice
from graded import graded

from gpupack_agent.errors import DriverTimeout, InventoryUnavailable
from gpupack_agent.inventory import driver, driver_process
from gpupack_agent.inventory.driver import DriverInventory
from gpupack_agent.inventory.driver_root import DriverSearch
from gpupack_agent.inventory.layout import Place

FAKED = pathlib.Path(faked_driver.__file__)
HANGS_SECONDS = 5.0
"""A driver that does not answer for so long hangs. A busy machine can take as long to start it."""


class Host:
    """A file that controls the faked driver, and the inventory that queries it."""

    def __init__(self, folder):
        self.folder, self._path = folder, folder / "state.json"
        self.inventories = []

    def is_now(self, *gpus, **state):
        whole = json.dumps({"gpus": list(gpus), **state})
        new = self._path.with_suffix(".new")
        new.write_text(whole)
        new.replace(self._path)

    def inventory(self, *, timeout_seconds=30.0, scan_seconds=30.0):
        run = (sys.executable, "-B", str(FAKED), str(self._path))
        made = DriverInventory(
            DriverSearch(self.folder),
            scan_seconds=scan_seconds,
            timeout_seconds=timeout_seconds,
            run=run,
        )
        self.inventories.append(made)
        return made


@pytest.fixture
async def host(tmp_path):
    found = Host(tmp_path)
    found.is_now(gpu(0), gpu(1), gpu(2))
    yield found
    for each in found.inventories:
        await each.close()


def health(findings):
    return {device.index: device.health for device in findings.devices}


async def test_facts_of_the_driver_process_arrive(host):
    found = await host.inventory().scan()
    assert [device.uuid for device in found.devices] == ["GPU-0", "GPU-1", "GPU-2"]
    assert (found.driver_version, found.minors["GPU-2"]) == ("580.95.05", 2)


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetSamples",
        "nvmlDeviceGetSupportedEventTypes",
    ],
)
async def test_a_gpu_whose_call_hangs_is_failed_and_hides_no_other(host, call):
    inventory = host.inventory(timeout_seconds=HANGS_SECONDS)
    await inventory.scan()
    host.is_now(gpu(0), gpu(1), gpu(2), hangs={call: [1]})
    if call == "nvmlDeviceGetSupportedEventTypes":
        await ended(inventory)
    found = await inventory.scan()
    assert health(found) == {0: "Healthy", 1: "Failed", 2: "Healthy"}
    (failed,) = (each for each in found.devices if each.index == 1)
    assert (failed.cause, failed.causes) == (driver.HANGS_CAUSE, ("DriverTimeout",))


async def ended(inventory):
    """Kill the process that queries the driver, and wait until that is noticed."""
    os.kill(inventory._process._process.pid, signal.SIGKILL)
    with pytest.raises(InventoryUnavailable, match="has ended"):
        await inventory.scan()


async def test_a_gpu_that_hung_is_queried_again_after_a_while(host, monkeypatch):
    inventory = host.inventory(timeout_seconds=HANGS_SECONDS)
    await inventory.scan()
    host.is_now(gpu(0), gpu(1), gpu(2), hangs={"nvmlDeviceGetMemoryInfo": [1]})
    await inventory.scan()
    host.is_now(gpu(0), gpu(1), gpu(2))
    assert health(await inventory.scan())[1] == "Failed"
    monkeypatch.setattr(driver, "RETRY_SECONDS", 0.0)
    assert health(await inventory.scan()) == {0: "Healthy", 1: "Healthy", 2: "Healthy"}


async def test_a_gpu_that_answers_under_another_number_is_not_failed_for_the_one_that_hung(host):
    inventory = host.inventory(timeout_seconds=HANGS_SECONDS)
    await inventory.scan()
    host.is_now(gpu(0), gpu(1), gpu(2), hangs={"nvmlDeviceGetMemoryInfo": [1]})
    await inventory.scan()
    host.is_now(gpu(1), gpu(9), gpu(2))
    found = await inventory.scan()
    assert {each.uuid: each.health for each in found.devices} == {
        "GPU-1": "Healthy",
        "GPU-2": "Healthy",
    }


def in_mig_mode(**facts):
    profiles, places = {0: (19, "1g.18gb"), 2: (9, "3g.71gb")}, {19: (1, (0, 1)), 9: (4, (0, 4))}
    plain = {"mig": 1, "slices": [mig_slice("MIG-1")], "pids": []}
    return gpu(0, **(plain | facts), profiles=profiles, places=places)


async def test_a_gpu_is_partitioned_by_the_process_that_queries_the_driver(host):
    host.is_now(in_mig_mode())
    inventory = host.inventory()
    await inventory.scan()
    await inventory.partition("GPU-0", [Place("3g.71gb", 4, 4), Place("1g.18gb", 0, 1)])
    found = await inventory.scan()
    assert {(each.mig_profile, each.mig_start) for each in found.devices} == {
        ("3g.71gb", 4),
        ("1g.18gb", 0),
    }
    (one,) = found.mig_gpus
    assert (one.uuid, sorted(one.profiles)) == ("GPU-0", ["1g.18gb", "3g.71gb"])


@pytest.mark.parametrize(("uuid", "text"), [("GPU-0", "processes use"), ("GPU-9", "NVML")])
async def test_a_partitioning_that_fails_gives_the_reason_and_the_process_continues(
    host, uuid, text
):
    host.is_now(in_mig_mode(pids=[7]))
    inventory = host.inventory()
    await inventory.scan()
    with pytest.raises(InventoryUnavailable, match=text):
        await inventory.partition(uuid, [])
    assert [each.uuid for each in (await inventory.scan()).devices] == ["MIG-1"]


async def test_a_partitioning_that_hangs_is_abandoned(host, monkeypatch):
    monkeypatch.setattr(driver_process, "PARTITION_SECONDS", 0.5)
    host.is_now(in_mig_mode(), hangs={"nvmlGpuInstanceDestroy": None})
    inventory = host.inventory(timeout_seconds=HANGS_SECONDS)
    await inventory.scan()
    with pytest.raises(DriverTimeout):
        await inventory.partition("GPU-0", [])
    host.is_now(in_mig_mode())
    assert [each.uuid for each in (await inventory.scan()).devices] == ["MIG-1"]


async def test_a_hanging_call_of_no_single_gpu_fails_the_scan_and_the_next_scan_repeats_it(host):
    inventory = host.inventory(timeout_seconds=HANGS_SECONDS)
    host.is_now(gpu(0), hangs={"nvmlDeviceGetCount": None})
    with pytest.raises(DriverTimeout, match="has not answered within 5 s"):
        await inventory.scan()
    host.is_now(gpu(0))
    assert health(await inventory.scan()) == {0: "Healthy"}


async def test_no_process_is_started_while_too_many_killed_ones_hang(host):
    inventory = host.inventory()
    hanging = types.SimpleNamespace(returncode=None)
    inventory._process._stuck = [hanging] * driver_process.MAX_STUCK
    with pytest.raises(InventoryUnavailable, match="3 calls to the NVIDIA driver hang"):
        await inventory.scan()
    inventory._process._stuck = []
    assert len((await inventory.scan()).devices) == 3


async def test_a_process_that_was_killed_is_started_again(host):
    inventory = host.inventory()
    await inventory.scan()
    await ended(inventory)
    assert len((await inventory.scan()).devices) == 3


async def test_a_missing_driver_is_an_error_with_instructions(host):
    host.is_now(missing=True)
    with pytest.raises(InventoryUnavailable, match=r"agent\.driverRoot"):
        await host.inventory().scan()


async def test_an_xid_starts_a_scan_and_counts_until_errors_are_forgotten(host):
    inventory = host.inventory()
    host.is_now(gpu(0, events=8), event=79)
    await inventory.scan()
    await asyncio.wait_for(inventory.changed(), 30)
    (device,) = graded(await inventory.scan())
    assert (device.health, device.xids) == ("Failed", (79,))
    inventory.forget()
    await asyncio.wait_for(inventory.changed(), 30)
    (device,) = graded(await inventory.scan())
    assert (device.health, device.xids) == ("Healthy", ())


async def test_without_an_event_a_scan_is_due_after_a_while(host):
    await asyncio.wait_for(host.inventory(scan_seconds=0.05).changed(), 30)


async def test_a_container_gets_the_device_nodes_of_its_gpus_alone(host):
    inventory = host.inventory()
    host.is_now(gpu(0, minor=4), gpu(1, minor=2))
    await inventory.scan()
    assert inventory.injection(["GPU-1"]).device_nodes == ("/dev/nvidia2",)
    with pytest.raises(InventoryUnavailable, match="device node of GPU-7"):
        inventory.injection(["GPU-0", "GPU-7"])


def plug_in(root, *devices):
    for number, (vendor, kind) in enumerate(devices):
        folder = root / f"sys/bus/pci/devices/0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")


@pytest.mark.parametrize(
    "devices",
    [(("0x1002", "0x120000"),), (("0x10de", "0x020700"), ("0x1002", "0x030000"))],
    ids=["a GPU of AMD's", "a network card of NVIDIA's"],
)
async def test_a_node_without_nvidias_gpus_needs_no_driver(host, devices):
    plug_in(host.folder, *devices)
    host.is_now(missing=True)
    assert (await host.inventory().scan()).devices == ()


async def test_an_nvidia_gpu_without_a_driver_is_an_error(host):
    plug_in(host.folder, ("0x10de", "0x030200"), ("0x1002", "0x120000"))
    host.is_now(missing=True)
    with pytest.raises(InventoryUnavailable, match="install NVIDIA's driver"):
        await host.inventory().scan()


async def test_without_a_list_of_pci_devices_a_missing_driver_is_an_error(host):
    host.is_now(missing=True)
    with pytest.raises(InventoryUnavailable, match="install NVIDIA's driver"):
        await host.inventory().scan()


async def test_programs_that_fail_again_and_again_do_not_have_the_gpus_scanned_each_time(host):
    inventory = host.inventory()
    await inventory.scan()
    began = asyncio.get_running_loop().time()
    for _ in range(3):
        inventory._wake.set()
        await inventory.changed()
        await inventory.scan()
    assert asyncio.get_running_loop().time() - began >= 3 * driver.MIN_SCAN_INTERVAL_SECONDS


async def test_errors_forgotten_during_a_scan_do_not_count_in_that_scan(host, monkeypatch):
    host.is_now(gpu(0, events=8), event=79)
    inventory = host.inventory()
    await inventory.scan()
    await inventory.changed()
    assert graded(await inventory.scan())[0].xids == (79,)
    original_scan = inventory._process.scan

    async def scan_and_forget(skip):
        found = await original_scan(skip)
        monkeypatch.undo()
        inventory.forget()
        return found

    monkeypatch.setattr(inventory._process, "scan", scan_and_forget)
    assert graded(await inventory.scan())[0].xids == ()


async def test_a_driver_that_returns_is_queried_by_a_new_process(host):
    inventory = host.inventory()
    await inventory.scan()
    process = inventory._process._process
    host.is_now(unavailable=True)
    with pytest.raises(InventoryUnavailable):
        await inventory.scan()
    host.is_now(gpu(0))
    assert health(await inventory.scan()) == {0: "Healthy"}
    assert process.returncode is not None
