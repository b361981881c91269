# SPDX-License-Identifier: Apache-2.0
"""Whether everything fits, asked before any work: no rank is to fail while others wait for it."""

from dataclasses import dataclass

from mpi4py import MPI

from gpupack_workloads.errors import OutOfMemory
from gpupack_workloads.memory import GIB, free_bytes, host_bytes
from gpupack_workloads.mpi.world import World


@dataclass(frozen=True)
class Need:
    """What a rank takes at the most, in bytes.

    Attributes:
        device: of its tensors.
        host: beside them where they are a GPU's.
    """

    device: int
    host: int


def require_room(need: Need, world: World, *, doing: str, smaller: str) -> None:
    """Make sure that every rank has this memory; all ranks must call this together.

    Args:
        need: of each rank.
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
                f" {least / GIB:.1f} GiB: ask for a smaller {smaller}"
            )
