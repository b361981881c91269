# SPDX-License-Identifier: Apache-2.0
"""Checks that buffers fit before any work, so that no rank fails while others wait for it."""

import os

import torch
import torch.distributed as dist

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import OutOfMemory
from gpupack_workloads.memory import GIB, free_bytes


def require_memory_on_all_ranks(
    needed: int, device: Device, *, doing: str, smaller: str = "--size"
) -> None:
    """Check that every rank has this many bytes; all ranks must call this together.

    Args:
        needed: bytes.
        device: where they are needed.
        doing: names the work.
        smaller: the options that make it need less.

    Raises:
        OutOfMemory: a rank has less; every rank raises it.
    """
    least = least_free_bytes(device)
    if least < needed:
        raise OutOfMemory(
            f"{doing} needs {needed / GIB:.1f} GiB per process, and a process has"
            f" {least / GIB:.1f} GiB: set a smaller {smaller}"
        )


def least_free_bytes(device: Device) -> int:
    """Return the least that a process of any rank has free; all ranks must call this together."""
    free = free_bytes(device) // (local_processes() if device.simulated else 1)
    least = torch.tensor(free, dtype=torch.int64, device=device.torch)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    return int(least.item())


def local_processes() -> int:
    """Return how many processes have this container's memory among them."""
    return int(os.environ.get("LOCAL_WORLD_SIZE") or dist.get_world_size())
