# SPDX-License-Identifier: Apache-2.0
import ctypes.util
import os
import shutil
import stat

import pytest

from gpupack_agent.inventory.driver_files import create_device_nodes, injection, preload
from gpupack_agent.inventory.driver_root import DriverSearch


def host(tmp_path, *paths):
    for path in paths:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return DriverSearch(tmp_path)


def test_nodes_that_all_programs_need_come_with_those_of_the_gpus(tmp_path):
    search = host(tmp_path, "dev/nvidiactl", "dev/nvidia-uvm")
    made = injection(search, [3, 1])
    assert made.device_nodes == (
        "/dev/nvidia1",
        "/dev/nvidia3",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
    )
    assert made.host_nodes == {}


def test_a_library_is_mounted_under_the_name_that_programs_look_for(tmp_path):
    search = host(tmp_path, "usr/lib64/libcuda.so.580.1", "usr/lib64/libvideo.so.1")
    (tmp_path / "usr/lib64/libcuda.so.1").symlink_to("libcuda.so.580.1")
    mounts = injection(search, [0]).mounts
    assert {mount.host_path for mount in mounts} == {"/usr/lib64/libcuda.so.580.1"}
    assert {mount.container_path.rpartition("/")[2] for mount in mounts} == {"libcuda.so.1"}


def test_a_host_without_a_driver_gives_no_mounts(tmp_path):
    assert injection(DriverSearch(tmp_path), [0]).mounts == ()


def test_the_program_that_shows_gpus_is_found_where_a_gpu_operator_puts_it(tmp_path):
    search = host(tmp_path, "usr/local/nvidia/bin/nvidia-smi", "usr/bin/nvidia-smi")
    (mount,) = injection(search, [0]).mounts
    assert mount.host_path == "/usr/local/nvidia/bin/nvidia-smi"
    assert mount.container_path == "/usr/bin/nvidia-smi"


def test_a_variable_gives_the_drivers_folder_to_programs_that_read_the_loaders_cache(tmp_path):
    folder = injection(DriverSearch(tmp_path), [0]).environment["TRITON_LIBCUDA_PATH"]
    search = host(tmp_path, "usr/lib64/libcuda.so.1")
    assert f"{folder}/libcuda.so.1" in {
        mount.container_path for mount in injection(search, [0]).mounts
    }


def test_the_agent_loads_the_drivers_library_from_the_hosts_folders(tmp_path):
    search = host(tmp_path, "usr/local/nvidia/lib64/libnvidia-ml.so.1")
    assert not preload(search, "libnvidia-ml.so.1")
    some_library = f"/usr/lib/x86_64-linux-gnu/{ctypes.util.find_library('z')}"
    shutil.copy(some_library, tmp_path / "usr/local/nvidia/lib64/libnvidia-ml.so.1")
    assert preload(search, "libnvidia-ml.so.1")
    assert not preload(search, "libcuda.so.1")


def test_nodes_of_a_driver_container_are_given_from_its_own_folder(tmp_path):
    search = host(
        tmp_path,
        "run/nvidia/driver/usr/lib64/libcuda.so.1",
        "run/nvidia/driver/dev/nvidia0",
        "run/nvidia/driver/dev/nvidiactl",
        "dev/nvidia-uvm",
    )
    made = injection(search, [0])
    assert made.device_nodes == ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
    assert made.host_nodes == {
        "/dev/nvidia0": "/run/nvidia/driver/dev/nvidia0",
        "/dev/nvidiactl": "/run/nvidia/driver/dev/nvidiactl",
    }


def test_device_nodes_that_came_after_the_container_are_made_in_it(tmp_path):
    search = host(tmp_path, "usr/lib64/libcuda.so.1", "dev/nvidiactl", "own/nvidiactl")
    try:
        os.mknod(tmp_path / "dev/nvidia0", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making device nodes takes CAP_MKNOD")
    create_device_nodes(search, tmp_path / "own")
    made = (tmp_path / "own/nvidia0").stat()
    assert (stat.S_ISCHR(made.st_mode), made.st_rdev) == (True, os.makedev(1, 3))
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == ["nvidia0", "nvidiactl"]
