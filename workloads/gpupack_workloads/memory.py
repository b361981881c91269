# SPDX-License-Identifier: Apache-2.0
"""Checks the free memory before any work, because a container over its limit is killed at once."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import torch

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import OutOfMemory

CGROUP = Path("/sys/fs/cgroup")
MEMORY_INFO = Path("/proc/meminfo")
MIB = 2**20
GIB = 2**30


@dataclass(frozen=True)
class LimitFiles:
    """Files with a container's memory in one version of cgroups.

    Attributes:
        folder: below the root of cgroups.
        limit: its file, in bytes.
        used: the file of what counts against it, in bytes.
        old_files: the line of `memory.stat` with files that were read a while ago.
    """

    folder: str
    limit: str
    used: str
    old_files: str


V2 = LimitFiles(".", "memory.max", "memory.current", "inactive_file")
# The files of groups below count against its limit, too; without a limit it says nearly 2^63.
V1 = LimitFiles("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def require_memory(
    device: Device, *, doing: str, on_device: int, on_host: int = 0, smaller: str = "--size"
) -> None:
    """Make sure that work has about the memory it needs; on a CPU both come from the host.

    Args:
        device: where the work is done.
        doing: names the work.
        on_device: bytes that its tensors take at once.
        on_host: bytes that NumPy takes in addition.
        smaller: the options that make it need less.

    Raises:
        OutOfMemory: less is free.
    """
    if device.simulated:
        wants = [("this container", on_device + on_host, host_bytes())]
    else:
        wants = [
            (device.name, on_device, free_bytes(device)),
            ("this container", on_host, host_bytes()),
        ]
    for place, needed, free in wants:
        if needed > free:
            raise OutOfMemory(
                f"{doing} needs about {needed / GIB:.1f} GiB of {place}, where"
                f" {free / GIB:.1f} GiB are free: set a smaller {smaller}"
            )


def free_bytes(device: Device) -> int:
    """Return what the GPU, or this container, has left."""
    if device.simulated:
        return host_bytes()
    return int(torch.cuda.mem_get_info(device.torch)[0])


def host_bytes() -> int:
    """Return what this container has left."""
    return min(_available_bytes(MEMORY_INFO.read_text()), container_bytes(CGROUP))


def container_bytes(cgroup: Path) -> int:
    """Return what the limit of the cgroup leaves; a container without a limit has no bound here.

    Files that were read a while ago count as used until something else needs their memory.
    """
    return min(_left_bytes(cgroup / files.folder, files) for files in (V2, V1))


def _left_bytes(folder: Path, files: LimitFiles) -> int:
    with contextlib.suppress(OSError, ValueError):
        limit, used = (int((folder / name).read_text()) for name in (files.limit, files.used))
        return max(0, limit - max(0, used - _old_files_bytes(folder, files)))
    return 2**63


def _old_files_bytes(folder: Path, files: LimitFiles) -> int:
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = (folder / "memory.stat").read_text().splitlines()
        return int(dict(line.split() for line in lines)[files.old_files])
    return 0


def _available_bytes(memory_info: str) -> int:
    fields = dict(line.split(":", 1) for line in memory_info.splitlines() if ":" in line)
    return int(fields["MemAvailable"].split()[0]) * 1024
