# SPDX-License-Identifier: Apache-2.0
"""Checks that all buffers fit before any work, so that no rank fails while others wait for it."""

from dataclasses import dataclass

from mpi4py import MPI

from gpupack_workloads.errors import OutOfMemory
from gpupack_workloads.memory import GIB, free_bytes, host_bytes
from gpupack_workloads.mpi.world import World


@dataclass(frozen=True)
class Need:
    """Maximum memory of a rank, in bytes.

    Attributes:
        device: bytes of its tensors.
        host: in addition, if the tensors are a GPU's.
    """

    device: int
    host: int


def require_memory_on_all_ranks(need: Need, world: World, *, doing: str, smaller: str) -> None:
    """Check that every rank has this memory; all ranks must call this together.

    Args:
        need: memory of each rank.
        world: the ranks; those of a worker have its container's memory among them.
        doing: names the work.
        smaller: the option that makes it need less.

    Raises:
        OutOfMemory: a rank has less; every rank raises it.
    """
    host = host_bytes() // world.local_ranks
    on_gpu = not world.device.simulated
    for place, needed, free in (
        ("the GPU", need.device, free_bytes(world.device))
        if on_gpu
        else ("the container", need.device, host),
        ("the container", need.host, host),
    ):
        least = world.comm.allreduce(free, MPI.MIN)
        if needed > least:
            raise OutOfMemory(
                f"{doing} needs about {needed / GIB:.1f} GiB of {place} per rank, where a rank has"
                f" {least / GIB:.1f} GiB: set a smaller {smaller}"
            )
