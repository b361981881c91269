# SPDX-License-Identifier: Apache-2.0
"""Runs inside a container: prints, as JSON, which GPUs there are for it.

It does not only look: it also makes device nodes by itself, as root may in a container, and tries
to open them. Only the runtime's device rules stand in the way of that.
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
    """Print what is there."""
    print(
        json.dumps(
            {
                "nodes": sorted(map(str, Path("/dev").glob("nvidia*"))),
                "opened": sorted(minor for minor in MINORS if can_open(minor)),
                "driver": has_driver(),
                "cuda": cuda_devices(),
                "nvml": nvml_devices(),
                "told": os.environ.get("GPUPACK_DEVICES", ""),
                "uid": os.getuid(),
            }
        )
    )


def can_open(minor: int) -> bool:
    """Make a device node of a GPU and open it."""
    path = f"/tmp/made-{minor}"  # noqa: S108 - in a container of our own
    with contextlib.suppress(OSError):
        os.mknod(path, 0o600 | 0o020000, os.makedev(MAJOR, minor))
        os.close(os.open(path, os.O_RDWR))
        return True
    return False


def has_driver() -> bool:
    """Whether the driver's library can be loaded."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return True
    return False


def cuda_devices() -> list[str]:
    """UUIDs of the GPUs that CUDA finds."""
    import torch  # noqa: PLC0415 - takes seconds, and the rest is told without it

    if not torch.cuda.is_available():
        return []
    count = torch.cuda.device_count()
    return [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(count)]


def nvml_devices() -> list[str]:
    """UUIDs of the GPUs that the driver's own program lists: `GPU 0: NVIDIA H200 (UUID: GPU-…)`."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except OSError:
        return []
    lines = (line for line in done.stdout.splitlines() if "(UUID: " in line)
    return [line.rpartition("(UUID: ")[2].rstrip(")") for line in lines]


main()
