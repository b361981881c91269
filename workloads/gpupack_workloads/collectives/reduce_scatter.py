# SPDX-License-Identifier: Apache-2.0
"""Reduce-scatter: every rank gets its part of the reduction. The size is that of the input."""

from typing import ClassVar

import torch
import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers, reduce_op, whole_and_part
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class ReduceScatter:
    """Reduce-scatter; in place, the sum replaces the rank's own part of the input."""

    name: ClassVar[str] = "reduce-scatter"
    shared: ClassVar[bool] = True
    in_place: ClassVar[tuple[bool, ...]] = (False, True)

    def crossings(self, ranks: int) -> float:
        """Return (n-1)/n: a rank's own part stays."""
        return (ranks - 1) / ranks

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:
        """Return buffers: the whole to send, a part to receive."""
        whole, own = whole_and_part(elements, rank_data, in_place=in_place)
        return Buffers(whole, own)

    def start(self, buffers: Buffers, rank_data: RankData) -> None:
        """Sum and scatter."""
        dist.reduce_scatter_tensor(buffers.receive, buffers.send, op=reduce_op(rank_data))

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Count errors: our part must have the reduction over the ranks at our positions."""
        start = rank_data.rank * buffers.receive.numel()

        def values(first: int, count: int) -> torch.Tensor:
            return rank_data.reduced(start + first, count)

        return count_wrong(buffers.receive, values, tolerance=rank_data.tolerance)
