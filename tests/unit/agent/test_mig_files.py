# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.driver_root import HostDriver
from gpupack_agent.inventory.mig_files import CAPABILITIES, capabilities


@pytest.fixture
def host(tmp_path):
    instance = tmp_path / CAPABILITIES / "gpu4/mig/gi9"
    for folder, minor in ((instance, 66), (instance / "ci0", 67)):
        folder.mkdir(parents=True, exist_ok=True)
        text = f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
        (folder / "access").write_text(text)
        node = tmp_path / f"dev/nvidia-caps/nvidia-cap{minor}"
        node.parent.mkdir(parents=True, exist_ok=True)
        node.touch()
    return tmp_path


def test_a_slice_needs_the_nodes_of_both_its_instances(host):
    wanted = ("nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67")
    assert capabilities(HostDriver(host), 4, 9, 0) == wanted


def test_a_slice_that_the_driver_does_not_show_is_not_given(host):
    with pytest.raises(InventoryUnavailable, match="does not show a MIG slice"):
        capabilities(HostDriver(host), 4, 9, 1)


def test_a_missing_device_node_is_an_error_with_the_command_that_creates_it(host):
    (host / "dev/nvidia-caps/nvidia-cap67").unlink()
    with pytest.raises(InventoryUnavailable, match="nvidia-modprobe -f /proc/driver/nvidia"):
        capabilities(HostDriver(host), 4, 9, 0)
