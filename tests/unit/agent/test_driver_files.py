# SPDX-License-Identifier: Apache-2.0
import ctypes.util
import shutil

from gpupack_agent.inventory.driver_files import injection, preload


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


def test_the_program_that_shows_gpus_is_found_where_a_gpu_operator_puts_it(tmp_path):
    root = host(tmp_path, "usr/local/nvidia/bin/nvidia-smi", "usr/bin/nvidia-smi")
    (mount,) = injection(root, [0]).mounts
    assert mount.host_path == "/usr/local/nvidia/bin/nvidia-smi"
    assert mount.container_path == "/usr/bin/nvidia-smi"


def test_what_reads_the_loaders_cache_is_told_where_the_driver_is(tmp_path):
    folder = injection(tmp_path, [0]).environment["TRITON_LIBCUDA_PATH"]
    root = host(tmp_path, "usr/lib64/libcuda.so.1")
    assert f"{folder}/libcuda.so.1" in {
        mount.container_path for mount in injection(root, [0]).mounts
    }


def test_the_agent_loads_the_drivers_library_from_the_hosts_folders(tmp_path):
    root = host(tmp_path, "usr/local/nvidia/lib64/libnvidia-ml.so.1")
    assert not preload(root, "libnvidia-ml.so.1")
    some_library = f"/usr/lib/x86_64-linux-gnu/{ctypes.util.find_library('z')}"
    shutil.copy(some_library, root / "usr/local/nvidia/lib64/libnvidia-ml.so.1")
    assert preload(root, "libnvidia-ml.so.1")
    assert not preload(root, "libcuda.so.1")
