# SPDX-License-Identifier: Apache-2.0
"""Whether buffers fit, asked before any work, so that no rank fails while others wait for it."""

import contextlib
from pathlib import Path

import torch
import torch.distributed as dist

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import OutOfMemory

CGROUP = Path("/sys/fs/cgroup")
MEMORY_INFO = Path("/proc/meminfo")
GIB = 2**30


def require_room(needed: int, device: Device, *, doing: str) -> None:
    """Make sure that every rank has this many bytes; all ranks must call this together.

    Raises:
        OutOfMemory: a rank has less; every rank raises it.
    """
    free = free_bytes(device) // (1 if not device.simulated else dist.get_world_size())
    least = torch.tensor([float(free)], dtype=torch.float64, device=device.torch)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    if least.item() < needed:
        raise OutOfMemory(
            f"{doing} needs {needed / GIB:.1f} GiB per process, and a process has"
            f" {least.item() / GIB:.1f} GiB: ask for a smaller --size"
        )


def free_bytes(device: Device) -> int:
    """Return what the GPU, or this container, has left."""
    if not device.simulated:
        return int(torch.cuda.mem_get_info(device.torch)[0])
    return min(_host_bytes(MEMORY_INFO.read_text()), container_bytes(CGROUP))


def container_bytes(cgroup: Path) -> int:
    """Return what the limit of cgroup v2 leaves; a container without a limit has no bound here."""
    with contextlib.suppress(OSError, ValueError):
        limit, used = (
            int((cgroup / name).read_text()) for name in ("memory.max", "memory.current")
        )
        return max(0, limit - used)
    return 2**63


def _host_bytes(memory_info: str) -> int:
    fields = dict(line.split(":", 1) for line in memory_info.splitlines() if ":" in line)
    return int(fields["MemAvailable"].split()[0]) * 1024
