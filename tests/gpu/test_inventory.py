# SPDX-License-Identifier: Apache-2.0
"""The agent's inventory on a host with NVIDIA GPUs, against what NVIDIA's own program says."""

import asyncio
import ctypes
import pathlib
import subprocess
import time

import pytest

from gpupack_agent.inventory.driver import DriverInventory
from gpupack_agent.inventory.driver_root import DriverSearch

pytestmark = pytest.mark.gpu


class Asked:
    """The agent's inventory, for tests that wait for it."""

    def __init__(self, runner):
        self._runner = runner
        self._inventory = DriverInventory(
            DriverSearch(pathlib.Path("/")), scan_seconds=10, timeout_seconds=10
        )
        self.injection, self.close = self._inventory.injection, self._inventory.close

    def scan(self):
        return self._runner.run(self._inventory.scan())


@pytest.fixture
def inventory():
    with asyncio.Runner() as runner:
        asked = Asked(runner)
        yield asked
        runner.run(asked.close())


def ask(fields):
    """Return the fields of each GPU by nvidia-smi."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [tuple(line.split(", ")) for line in lines.splitlines()]


def test_every_gpu_is_found_with_its_name_memory_and_driver(inventory):
    found = inventory.scan()
    seen = [(gpu.uuid, gpu.model, str(gpu.memory_mib)) for gpu in found.devices]
    assert seen == ask("uuid,name,memory.total")
    assert (found.driver_version,) == ask("driver_version")[0]
    assert float(found.cuda_version) >= 12


def test_healthy_gpus_are_graded_healthy(inventory):
    assert {(gpu.health, gpu.cause) for gpu in inventory.scan().devices} == {("Healthy", "")}


def test_gpus_that_reach_each_other_over_nvlink_are_one_clique(inventory):
    cliques = [gpu.nvlink_clique for gpu in inventory.scan().devices]
    assert set(cliques) == ({None} if len(cliques) == 1 else {0})


def test_injected_device_nodes_exist_and_belong_to_the_requested_gpu(inventory):
    for gpu in inventory.scan().devices:
        injection = inventory.injection([gpu.uuid])
        files = [*injection.device_nodes, *(mount.host_path for mount in injection.mounts)]
        assert [path for path in files if not pathlib.Path(path).exists()] == []
        (minor,) = ask_minor(gpu.uuid)
        gpus = [node for node in injection.device_nodes if node[len("/dev/nvidia") :].isdigit()]
        assert gpus == [f"/dev/nvidia{minor}"]
        names = {pathlib.Path(mount.container_path).name for mount in injection.mounts}
        assert {"libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi"} <= names


def ask_minor(uuid):
    """The driver's own word for a GPU's minor number, from /proc."""
    ((bus,),) = [(bus,) for other, bus in ask("uuid,pci.bus_id") if other == uuid]
    text = pathlib.Path(f"/proc/driver/nvidia/gpus/{bus[-12:].lower()}/information").read_text()
    return [line.split()[-1] for line in text.splitlines() if line.startswith("Device Minor")]


@pytest.fixture
def gibibyte():
    """A GiB on the first GPU; writes it so many times, and returns when that is done."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, memory = ctypes.c_void_p(), ctypes.c_ulonglong()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 30)) == 0

    def write(times):
        for _ in range(times):
            assert cuda.cuMemsetD8_v2(memory, 0, ctypes.c_size_t(1 << 30)) == 0
        assert cuda.cuCtxSynchronize() == 0

    yield write
    cuda.cuMemFree_v2(memory)
    cuda.cuDevicePrimaryCtxRelease_v2(0)


def test_milliseconds_of_work_ten_seconds_ago_make_a_gpu_busy_and_held_memory_does_not(
    inventory, gibibyte
):
    uuid = inventory.scan().devices[0].uuid
    time.sleep(8)
    inventory.scan()
    time.sleep(8)
    assert inventory.scan().busy[uuid] is False
    gibibyte(20)
    time.sleep(9.5)
    assert inventory.scan().busy[uuid] is True
    time.sleep(9.5)
    assert inventory.scan().busy[uuid] is False


def test_a_scan_reports_the_sm_activity_since_the_last_scan(inventory, gibibyte):
    assert inventory.scan().facts[0].load.sm_active_percent is None
    time.sleep(3)
    rested = inventory.scan().facts[0].load
    end = time.monotonic() + 4
    while time.monotonic() < end:
        gibibyte(200)
    worked = inventory.scan().facts[0].load
    assert rested.sm_active_percent == pytest.approx(0, abs=1)
    assert worked.sm_active_percent > 20
    assert worked.dram_active_percent > 20
    assert worked.tensor_active_percent == pytest.approx(0, abs=1)
