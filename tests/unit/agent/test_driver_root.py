# SPDX-License-Identifier: Apache-2.0
"""The driver is found in the layouts of distributions, of NVIDIA's GPU operator and of GKE."""

import pathlib
import re
import struct

import pytest

from gpupack_agent.host_files import Root
from gpupack_agent.inventory import loader_cache
from gpupack_agent.inventory.driver_root import DriverSearch, parse_setting

DEBIAN = ("/", "usr/lib/x86_64-linux-gnu", "usr/bin")
RED_HAT = ("/", "usr/lib64", "usr/bin")
DRIVER_CONTAINER = ("/run/nvidia/driver", "usr/lib/x86_64-linux-gnu", "usr/bin")
GKE = ("/home/kubernetes/bin/nvidia", "lib64", "bin")
NIXOS = ("/run/opengl-driver", "lib", "bin")
BOTTLEROCKET = ("/usr/lib/x86_64-bottlerocket-linux-gnu/nvidia/tesla", ".", "bin")

VERSION = "580.95.05"


def put(host, folder, libraries, programs, version=VERSION):
    """A driver as installers leave it: links to files that carry its version."""
    root = host / folder.lstrip("/")
    for name in ("libcuda.so", "libnvidia-ml.so"):
        file = root / libraries / f"{name}.{version}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        (root / libraries / f"{name}.1").symlink_to(f"{name}.{version}")
    program = root / programs / "nvidia-smi"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.touch()


def loaded(host, version):
    file = host / "proc/driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Release Build\n")


def shown(host, setting="auto"):
    driver = DriverSearch(host, setting).find()
    program = driver.program("nvidia-smi")
    paths = [path for _, path in driver.libraries] + ([program] if program else [])
    return driver.folder, {str(path.relative_to(host)) for path in paths}


@pytest.mark.parametrize("layout", [DEBIAN, RED_HAT, DRIVER_CONTAINER, GKE])
def test_a_usual_driver_folder_is_found_without_a_setting(tmp_path, layout):
    put(tmp_path, *layout)
    folder, libraries, programs = layout
    root = folder.lstrip("/") + "/" if folder != "/" else ""
    assert shown(tmp_path) == (
        folder,
        {
            f"{root}{libraries}/libcuda.so.{VERSION}",
            f"{root}{libraries}/libnvidia-ml.so.{VERSION}",
            f"{root}{programs}/nvidia-smi",
        },
    )


@pytest.mark.parametrize("layout", [NIXOS, BOTTLEROCKET, GKE])
def test_any_other_folder_is_found_by_the_setting(tmp_path, layout):
    put(tmp_path, *layout)
    put(tmp_path, *DEBIAN, version="470.1")
    folder, found = shown(tmp_path, layout[0])
    assert (folder, len(found)) == (layout[0], 3)
    assert {path.startswith(layout[0].lstrip("/")) for path in found} == {True}


def test_a_link_of_a_driver_container_leads_within_its_root(tmp_path):
    put(tmp_path, *DRIVER_CONTAINER)
    library = tmp_path / "run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    library.unlink()
    library.symlink_to(f"/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}")
    assert f"run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}" in shown(tmp_path)[1]


@pytest.mark.parametrize(("module", "folder"), [(VERSION, "/run/nvidia/driver"), ("535.1", "/")])
def test_of_two_drivers_the_one_counts_that_the_kernel_has_loaded(tmp_path, module, folder):
    put(tmp_path, *DEBIAN, version="535.1")
    put(tmp_path, *DRIVER_CONTAINER)
    loaded(tmp_path, module)
    assert shown(tmp_path)[0] == folder


def test_a_driver_that_is_installed_later_is_found_by_the_next_search(tmp_path):
    search = DriverSearch(tmp_path)
    assert search.find().libraries == ()
    put(tmp_path, *DRIVER_CONTAINER)
    assert search.find().version == VERSION


def cache(*entries):
    """A file as glibc's ldconfig writes it."""
    strings, rows = b"", b""
    start = 48 + 24 * len(entries)
    for flags, name, path in entries:
        key = start + len(strings)
        strings += name.encode() + b"\0"
        rows += struct.pack("<iIIIQ", flags, key, start + len(strings), 0, 0)
        strings += path.encode() + b"\0"
    return struct.pack("<20sII20x", b"glibc-ld.so.cache1.1", len(entries), len(strings)) + (
        rows + strings
    )


def test_a_folder_that_only_the_loader_knows_is_found_by_its_cache(tmp_path):
    put(tmp_path, "/", "opt/odd/nvidia", "usr/bin")
    assert shown(tmp_path)[1] == {"usr/bin/nvidia-smi"}
    path = tmp_path / "etc/ld.so.cache"
    path.parent.mkdir()
    path.write_bytes(
        cache(
            (0x0003, "libcuda.so.1", "/opt/odd/of-32-bit/libcuda.so.1"),
            (0x0303, "libcuda.so.1", "/opt/odd/nvidia/libcuda.so.1"),
        )
    )
    assert f"opt/odd/nvidia/libcuda.so.{VERSION}" in shown(tmp_path)[1]


def test_this_machines_own_cache_is_read():
    root = Root(pathlib.Path("/"))
    if not root.exists(loader_cache.CACHE):
        pytest.skip("this machine's loader has no cache")
    (folder, *_) = loader_cache.folders_of(root, "libc.so.6")
    assert (pathlib.Path(folder) / "libc.so.6").exists()


@pytest.mark.parametrize("length", [0, 20, 47, 60, 100])
def test_a_truncated_loader_cache_contains_no_library(tmp_path, length):
    (tmp_path / "etc").mkdir()
    whole = cache((0x0303, "libcuda.so.1", "/opt/odd/libcuda.so.1"))
    (tmp_path / "etc/ld.so.cache").write_bytes(whole[: min(length, 71)])
    assert DriverSearch(tmp_path).find().libraries == ()


@pytest.mark.parametrize("text", ["run/nvidia", "/run/../etc", "Auto"])
def test_a_folder_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_setting(text)
