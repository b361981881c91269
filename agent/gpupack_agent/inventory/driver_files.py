# SPDX-License-Identifier: Apache-2.0
"""What of the host's NVIDIA driver a container needs: device nodes and libraries.

The libraries must be those of the running driver, so they are mounted from the host, under the name
that programs look for (`libcuda.so.1`), into the folders that the dynamic loader searches without a
cache. NVIDIA's toolkit runs a hook that rewrites the container's loader cache instead; that needs
their binary on each host. What reads the cache itself is told the folder by a variable.
"""

import ctypes
import pathlib
from collections.abc import Iterable, Iterator

from gpupack_agent.inventory.base import Injection, Mount

SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""Device nodes that every CUDA program opens, whichever GPU it uses."""

LIBRARIES = (
    "libcuda.so.1",
    "libcudadebugger.so.1",
    "libnvidia-gpucomp.so.*",
    "libnvidia-ml.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-nvvm70.so.4",
    "libnvidia-pkcs11-openssl3.so.*",
    "libnvidia-ptxjitcompiler.so.1",
)
"""File names and patterns of the libraries that compute needs (not graphics, not video)."""

HOST_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/local/nvidia/lib64",
    "usr/lib",
)
"""Where distributions, NVIDIA's installer and GPU operators put them; the first with any wins."""

CONTAINER_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
"""Searched by the loaders of Debian's family and of Red Hat's."""

SMI = ("usr/local/nvidia/bin/nvidia-smi", "usr/bin/nvidia-smi")
"""Where the host may have the program; containers find it in /usr/bin. The first that is there
counts: where a driver has a folder of its own, what stands in /usr/bin can be a script that leads
there."""

NVIDIA_PCI = "0x10de"
DISPLAY_CLASS = "0x03"
"""Of sysfs' `vendor` and `class`; data centre GPUs are 3D controllers of this class."""

TRITON_FOLDER = "TRITON_LIBCUDA_PATH"
"""Triton, and with it torch.compile, looks for libcuda in the loader's cache unless this is set."""


def injection(root: pathlib.Path, minors: Iterable[int]) -> Injection:
    """Say what makes the GPUs with these minor numbers usable; `root` is where the host's / is."""
    nodes = [f"nvidia{minor}" for minor in sorted(minors)]
    nodes += [node for node in SHARED_NODES if (root / "dev" / node).exists()]
    return Injection(
        device_nodes=tuple(f"/dev/{node}" for node in nodes),
        mounts=tuple(_mounts(root)),
        environment={TRITON_FOLDER: CONTAINER_FOLDERS[0]},
    )


def has_nvidia_gpu(root: pathlib.Path) -> bool | None:
    """Whether one is plugged in, with a driver or without; None: the host lists no PCI devices."""
    devices = list((root / "sys/bus/pci/devices").glob("*"))
    if not devices:
        return None
    return any(
        _line(device / "vendor") == NVIDIA_PCI and _line(device / "class").startswith(DISPLAY_CLASS)
        for device in devices
    )


def preload(root: pathlib.Path, name: str) -> bool:
    """Load a driver library of the host into this process; later loads by that name find it.

    A container's own search path does not lead there, and setting one from outside would have to
    know the host's distribution.

    Returns:
        Whether the host has it and it could be loaded.
    """
    found = (path for library, path in libraries(root) if library == name)
    try:
        return any(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL) for path in found)
    except OSError:
        return False


def _mounts(root: pathlib.Path) -> Iterator[Mount]:
    for name, path in libraries(root):
        host_path = f"/{path.relative_to(root)}"
        for folder in CONTAINER_FOLDERS:
            yield Mount(host_path=host_path, container_path=f"{folder}/{name}")
    program = next((path for path in SMI if (root / path).exists()), None)
    if program is not None:
        yield Mount(host_path=f"/{program}", container_path="/usr/bin/nvidia-smi")


def libraries(root: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """Names and files; a link is followed within `root`, one step, as the installers make them."""
    for folder in HOST_FOLDERS:
        found = [
            (path.name, _followed(path))
            for pattern in LIBRARIES
            for path in sorted((root / folder).glob(pattern))
        ]
        if found:
            return found
    return []


def _followed(path: pathlib.Path) -> pathlib.Path:
    return path.parent / path.readlink() if path.is_symlink() else path


def _line(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip().lower()
    except OSError:
        return ""
