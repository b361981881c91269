# SPDX-License-Identifier: Apache-2.0
"""Every rank gets its part of the sum (or product, …) of all buffers. The size is what is sent."""

from typing import ClassVar

import torch
import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers, reduce_op, whole_and_part
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class ReduceScatter:
    """In place, the sum replaces one's own part of what was sent."""

    name: ClassVar[str] = "reduce-scatter"
    shared: ClassVar[bool] = True
    in_place: ClassVar[tuple[bool, ...]] = (False, True)

    def crossings(self, ranks: int) -> float:
        """(n-1)/n: one's own part stays."""
        return (ranks - 1) / ranks

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:
        """The whole to send, a part to receive."""
        whole, own = whole_and_part(elements, rank_data, in_place=in_place)
        return Buffers(whole, own)

    def start(self, buffers: Buffers, rank_data: RankData) -> None:
        """Sum and scatter."""
        dist.reduce_scatter_tensor(buffers.receive, buffers.send, op=reduce_op(rank_data))

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Our part holds what reducing over the ranks gives at our positions."""
        start = rank_data.rank * buffers.receive.numel()

        def values(first: int, count: int) -> torch.Tensor:
            return rank_data.reduced(start + first, count)

        return count_wrong(buffers.receive, values, tolerance=rank_data.tolerance)
