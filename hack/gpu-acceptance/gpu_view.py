# SPDX-License-Identifier: Apache-2.0
"""Prints the GPUs that a container sees, as JSON; runs inside the container.

It also creates device nodes, as root may in a container, and tries to open them. Only the runtime's
device rules prevent that.
"""

import contextlib
import ctypes
import json
import os
import subprocess
from pathlib import Path

MAJOR = 195
CONTROL_MINOR = 255
MINORS = (*range(16), CONTROL_MINOR)


def main() -> None:
    """Print all findings."""
    print(
        json.dumps(
            {
                "nodes": sorted(map(str, Path("/dev").glob("nvidia*"))),
                "opened": sorted(minor for minor in MINORS if can_open(minor)),
                "driver": has_driver(),
                "cuda": cuda_devices(),
                "nvml": nvml_devices(),
                "smi": smi(),
                "variable": os.environ.get("GPUPACK_DEVICES", ""),
                "uid": os.getuid(),
            }
        )
    )


def can_open(minor: int) -> bool:
    """Create a device node of a GPU; return whether it can be opened."""
    path = f"/tmp/made-{minor}"  # noqa: S108 - in a container of our own
    with contextlib.suppress(OSError):
        os.mknod(path, 0o600 | 0o020000, os.makedev(MAJOR, minor))
        os.close(os.open(path, os.O_RDWR))
        return True
    return False


def has_driver() -> bool:
    """Return whether the driver's library can be loaded."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return True
    return False


def cuda_devices() -> list[str]:
    """Return the UUIDs of the GPUs that CUDA finds."""
    import torch  # noqa: PLC0415 - takes seconds, and the rest works without it

    if not torch.cuda.is_available():
        return []
    count = torch.cuda.device_count()
    return [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(count)]


def nvml_devices() -> list[str]:
    """Return the UUIDs of the GPUs that NVML lists."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2():
        return []
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    return [nvml_uuid(nvml, index) for index in range(count.value)]


def smi() -> str:
    """Return the output of nvidia-smi."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return (done.stdout + done.stderr).strip()


def nvml_uuid(nvml: ctypes.CDLL, index: int) -> str:
    """Return the UUID of one GPU, or NVML's error."""
    handle, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    error = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    error = error or nvml.nvmlDeviceGetUUID(handle, uuid, len(uuid))
    return f"error {error}" if error else uuid.value.decode()


main()
