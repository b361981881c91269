# SPDX-License-Identifier: Apache-2.0
from gpupack_agent.inventory.driver_files import injection


def host(tmp_path, *paths):
    for path in paths:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return tmp_path


def test_nodes_that_all_programs_need_come_with_those_of_the_gpus(tmp_path):
    root = host(tmp_path, "dev/nvidiactl", "dev/nvidia-uvm")
    nodes = injection(root, [3, 1]).device_nodes
    assert nodes == ("/dev/nvidia1", "/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm")


def test_a_library_is_mounted_under_the_name_that_programs_look_for(tmp_path):
    root = host(tmp_path, "usr/lib64/libcuda.so.580.1", "usr/lib64/libvideo.so.1")
    (root / "usr/lib64/libcuda.so.1").symlink_to("libcuda.so.580.1")
    mounts = injection(root, [0]).mounts
    assert {mount.host_path for mount in mounts} == {"/usr/lib64/libcuda.so.580.1"}
    assert {mount.container_path.rpartition("/")[2] for mount in mounts} == {"libcuda.so.1"}


def test_a_host_without_a_driver_gives_no_mounts(tmp_path):
    assert injection(tmp_path, [0]).mounts == ()
