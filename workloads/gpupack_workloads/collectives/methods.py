# SPDX-License-Identifier: Apache-2.0
"""Methods to all-reduce small buffers on GPUs of one host."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from gpupack_workloads.collectives.place import Place

# Elements that torch's kernels move at once.
VECTOR = 4

# Sums a buffer over all ranks; returns where the sum is.
Call = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Method:
    """A way to sum small buffers.

    Attributes:
        send: what is summed; filled before a call.
        bind: returns the call that sums so many of the first elements.
        multiple: their number must be a multiple of it.
    """

    send: torch.Tensor
    bind: Callable[[int], Call]
    multiple: int = 1


def methods(place: Place, largest: int) -> dict[str, Method]:
    """Return all, for up to so many elements; all ranks must call this together."""
    return {
        "nccl": nccl(place, largest),
        "symm_mem one-shot": torch_one_shot(place, largest),
        "symm_mem two-shot": torch_two_shot(place, largest),
        "packets": packets(place, largest),
    }


def nccl(place: Place, largest: int) -> Method:
    """NCCL as torch calls it."""
    buffer = place.empty(largest)

    def bind(elements: int) -> Call:
        part = buffer[:elements]

        def call() -> torch.Tensor:
            dist.all_reduce(part)
            return part

        return call

    return Method(buffer, bind)


def torch_one_shot(place: Place, largest: int) -> Method:
    """One kernel of torch: every rank reads all buffers between two barriers."""
    group, buffer = symmetric_buffer(place, largest)
    total = place.empty(largest)

    def bind(elements: int) -> Call:
        return functools.partial(
            torch.ops.symm_mem.one_shot_all_reduce_out,
            *(buffer[:elements], "sum", group.group_name, total[:elements]),
        )

    return Method(buffer, bind)


def torch_two_shot(place: Place, largest: int) -> Method:
    """One kernel of torch: every rank sums its part, then reads the others'."""
    group, buffer = symmetric_buffer(place, largest)

    def bind(elements: int) -> Call:
        return functools.partial(
            torch.ops.symm_mem.two_shot_all_reduce_,
            *(buffer[:elements], "sum", group.group_name),
        )

    return Method(buffer, bind, multiple=place.ranks * VECTOR)


def packets(place: Place, largest: int) -> Method:
    """Our kernel: see kernels/all_reduce."""
    from gpupack_workloads.kernels.all_reduce.launch import (  # noqa: PLC0415  imports Triton
        symmetric_all_reduce,
    )

    summing = symmetric_all_reduce(world(), place.device)
    send, total = place.empty(largest), place.empty(largest)

    def bind(elements: int) -> Call:
        mine, sums = send[:elements], total[:elements]

        launch = summing.bind(mine, sums)

        def call() -> torch.Tensor:
            launch()
            return sums

        return call

    return Method(send, bind)


def symmetric_buffer(place: Place, elements: int) -> tuple[dist.ProcessGroup, torch.Tensor]:
    """Return a buffer of zeros that every rank can reach."""
    import torch.distributed._symmetric_memory as symmetric  # noqa: PLC0415  only GPUs have it

    group = world()
    buffer = symmetric.empty(elements, dtype=torch.float32, device=place.device)
    symmetric.rendezvous(buffer, group)
    return group, buffer.zero_()


def world() -> dist.ProcessGroup:
    """Return the group of all ranks."""
    group = dist.group.WORLD
    if group is None:
        raise RuntimeError("there is no process group")
    return group
