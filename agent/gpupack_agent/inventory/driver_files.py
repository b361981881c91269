# SPDX-License-Identifier: Apache-2.0
"""The parts of the host's NVIDIA driver that a container needs: device nodes and libraries.

The libraries must be those of the running driver. So they are mounted from the host, under the
names that programs look for (`libcuda.so.1`), into the folders that the dynamic loader searches
without a cache. NVIDIA's toolkit instead runs a hook that rewrites the container's loader cache,
which needs NVIDIA's binary on each host. A variable gives the folder to programs that read the
cache themselves.
"""

import contextlib
import ctypes
import logging
import os
import pathlib
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from gpupack_agent.inventory.base import Injection, Mount
from gpupack_agent.inventory.driver_root import DriverSearch, HostDriver

log = logging.getLogger(__name__)

SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""Device nodes that every CUDA program opens, independent of its GPU."""

CONTAINER_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
"""The folders that the loaders of the Debian and Red Hat families search."""

NVIDIA_SMI = "nvidia-smi"
DEVICES: Final = pathlib.Path("/dev")

NVIDIA_PCI = "0x10de"
DISPLAY_CLASS = "0x03"
"""NVIDIA's `vendor` and the prefix of `class` in sysfs; data centre GPUs are 3D controllers."""

TRITON_VARIABLE = "TRITON_LIBCUDA_PATH"
"""The variable without which Triton, and torch.compile with it, searches libcuda in the cache."""


def injection(search: DriverSearch, minors: Iterable[int]) -> Injection:
    """Return what a container needs to use the GPUs with these minor numbers."""
    driver = search.find()
    shared = [name for name in SHARED_NODES if driver.node(name)]
    nodes = [*(f"nvidia{minor}" for minor in sorted(minors)), *shared]
    return Injection(
        device_nodes=tuple(f"/dev/{node}" for node in nodes),
        host_nodes=host_node_paths(driver, nodes),
        mounts=tuple(_mounts(driver)),
        environment={TRITON_VARIABLE: CONTAINER_FOLDERS[0]},
    )


def host_node_paths(driver: HostDriver, nodes: Iterable[str]) -> dict[str, str]:
    """Return the host's paths of those nodes of /dev that are not in the host's own /dev."""
    found = ((f"/dev/{node}", driver.node(node)) for node in nodes)
    return {node: path for node, path in found if path and path != node}


def has_nvidia_gpu(root: pathlib.Path) -> bool | None:
    """Tell whether the host has an NVIDIA GPU, with a driver or without.

    None: the host lists no PCI devices.
    """
    devices = list((root / "sys/bus/pci/devices").glob("*"))
    if not devices:
        return None
    return any(
        _read_line(device / "vendor") == NVIDIA_PCI
        and _read_line(device / "class").startswith(DISPLAY_CLASS)
        for device in devices
    )


def preload(search: DriverSearch, name: str) -> bool:
    """Load a driver library of the host into this process, so that later loads by name find it.

    A container's search path does not contain the library's folder. A search path set from outside
    would depend on the host's distribution.

    Returns:
        Whether the host has the library and it could be loaded.
    """
    found = [path for library, path in search.find().libraries if library == name]
    try:
        return any(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL) for path in found)
    except OSError as error:
        log.warning("%s cannot be loaded: %s", name, error)
        return False


def create_device_nodes(search: DriverSearch, into: pathlib.Path = DEVICES) -> None:
    """Create the driver's device nodes that this container lacks.

    A container has the nodes that its host had when the container started. The driver may be
    installed later.
    """
    if search.host == pathlib.Path("/"):
        return
    for name, path in search.find().nodes().items():
        with contextlib.suppress(OSError):  # the driver's own error shows what is missing
            exists, device = (into / name).exists(), path.stat()
            if not exists and stat.S_ISCHR(device.st_mode):
                (into / name).parent.mkdir(exist_ok=True)
                os.mknod(into / name, device.st_mode, device.st_rdev)


def _mounts(driver: HostDriver) -> Iterator[Mount]:
    for name, path in driver.libraries:
        host_path = f"/{path.relative_to(driver.host)}"
        for folder in CONTAINER_FOLDERS:
            yield Mount(host_path=host_path, container_path=f"{folder}/{name}")
    if program := driver.program(NVIDIA_SMI):
        host_path = f"/{program.relative_to(driver.host)}"
        yield Mount(host_path=host_path, container_path=f"/usr/bin/{NVIDIA_SMI}")


def _read_line(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip().lower()
    except OSError:
        return ""
