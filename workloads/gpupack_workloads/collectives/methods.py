# SPDX-License-Identifier: Apache-2.0
"""Methods to all-reduce small buffers on GPUs of one host."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers
from gpupack_workloads.collectives.rank_data import RankData, count_wrong
from gpupack_workloads.collectives.series import Call

# Elements that torch's kernels move at once.
VECTOR = 4


@dataclass(frozen=True)
class Method:
    """A way to sum small buffers.

    Attributes:
        calls: returns the calls that sum so many elements, each a buffer of its own where sums
            replace what was summed.
        multiple: the number of elements must be one of it.
    """

    calls: Callable[[int], list[Call]]
    multiple: int = 1


def methods(rank_data: RankData, *, largest: int, repeats: int) -> dict[str, Method]:
    """Return all, for up to so many elements and calls; all ranks must call this together."""
    return {
        "nccl": nccl(rank_data, largest, repeats),
        "symm_mem one-shot": torch_one_shot(rank_data, largest),
        "symm_mem two-shot": torch_two_shot(rank_data, largest, repeats),
        "packets": packets(rank_data, largest),
    }


def nccl(rank_data: RankData, largest: int, repeats: int) -> Method:
    """Sum with NCCL as torch calls it."""
    rows = rank_data.zeros(repeats * largest).view(repeats, largest)

    def calls(elements: int) -> list[Call]:
        return [
            summing(rank_data, partial(dist.all_reduce, row), row) for row in rows[:, :elements]
        ]

    return Method(calls)


def torch_one_shot(rank_data: RankData, largest: int) -> Method:
    """Sum with one kernel of torch: every rank reads all buffers between two barriers."""
    group, buffer = symmetric_buffer(rank_data, largest)
    whole = rank_data.zeros(largest)

    def calls(elements: int) -> list[Call]:
        send, total = buffer[:elements], whole[:elements]
        one_shot = torch.ops.symm_mem.one_shot_all_reduce_out
        return [
            summing(rank_data, partial(one_shot, send, "sum", group.group_name, total), send, total)
        ]

    return Method(calls)


def torch_two_shot(rank_data: RankData, largest: int, repeats: int) -> Method:
    """Sum with one kernel of torch: every rank sums its part, then reads the others'."""
    group, buffer = symmetric_buffer(rank_data, repeats * largest)
    rows = buffer.view(repeats, largest)

    def calls(elements: int) -> list[Call]:
        two_shot = torch.ops.symm_mem.two_shot_all_reduce_
        return [
            summing(rank_data, partial(two_shot, row, "sum", group.group_name), row)
            for row in rows[:, :elements]
        ]

    return Method(calls, multiple=rank_data.ranks * VECTOR)


def packets(rank_data: RankData, largest: int) -> Method:
    """Sum with our kernel: see gpupack_kernels/communication/all_reduce."""
    from gpupack_kernels.communication.all_reduce.launch import (  # noqa: PLC0415  imports Triton
        symmetric_all_reduce,
    )

    ours = symmetric_all_reduce(world(), rank_data.device)
    buffer, whole = rank_data.zeros(largest), rank_data.zeros(largest)

    def calls(elements: int) -> list[Call]:
        send, total = buffer[:elements], whole[:elements]
        return [summing(rank_data, ours.bind(send, total), send, total)]

    return Method(calls)


def summing(
    rank_data: RankData,
    start: Callable[[], object],
    send: torch.Tensor,
    total: torch.Tensor | None = None,
) -> Call:
    """Return a call that sums a buffer over all ranks, in place if there is no other."""
    buffers = Buffers(send, send if total is None else total)
    wrong = partial(count_wrong, buffers.receive, rank_data.reduced)
    return Call(start, partial(buffers.fill, rank_data), wrong, send.numel())


def symmetric_buffer(rank_data: RankData, elements: int) -> tuple[dist.ProcessGroup, torch.Tensor]:
    """Return a buffer of zeros that every rank can reach."""
    import torch.distributed._symmetric_memory as symmetric  # noqa: PLC0415  only GPUs have it

    group = world()
    buffer = symmetric.empty(elements, dtype=torch.float32, device=rank_data.device)
    symmetric.rendezvous(buffer, group)
    return group, buffer.zero_()


def world() -> dist.ProcessGroup:
    """Return the group of all ranks."""
    group = dist.group.WORLD
    if group is None:
        raise RuntimeError("there is no process group")
    return group
