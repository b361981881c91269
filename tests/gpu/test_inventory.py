# SPDX-License-Identifier: Apache-2.0
"""The agent's inventory on a host with NVIDIA GPUs, against what NVIDIA's own program says."""

import pathlib
import subprocess

import pynvml
import pytest

from gpupack_agent.inventory.nvml import NvmlInventory, open_nvml
from gpupack_agent.inventory.xids import XidWatcher

pytestmark = pytest.mark.gpu


@pytest.fixture
def inventory():
    root = pathlib.Path("/")
    open_nvml(pynvml, host_root=root)
    return NvmlInventory(pynvml, XidWatcher(pynvml, scan_seconds=10), host_root=root)


def ask(fields):
    """What nvidia-smi says of each GPU."""
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


def test_what_is_injected_exists_and_is_of_the_gpu_that_was_asked_for(inventory):
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
