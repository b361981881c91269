# SPDX-License-Identifier: Apache-2.0
"""Rank 0 gets the sum (or product, …) of all buffers. torch has it in place only."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import ROOT, Buffers, reduce_op
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class Reduce:
    """Each byte goes to where it is summed; what others have afterwards is nothing to count on."""

    name: ClassVar[str] = "reduce"
    shared: ClassVar[bool] = False
    in_place: ClassVar[tuple[bool, ...]] = (True,)

    def crossings(self, ranks: int) -> float:
        """Return 1, unless there is nobody else."""
        return float(ranks > 1)

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """One buffer."""
        whole = rank_data.zeros(elements)
        return Buffers(whole, whole)

    def start(self, buffers: Buffers, rank_data: RankData) -> None:
        """Reduce to the root."""
        dist.reduce(buffers.receive, dst=ROOT, op=reduce_op(rank_data))

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """At the root every position holds what reducing over the ranks gives."""
        if rank_data.rank != ROOT:
            return 0
        return count_wrong(buffers.receive, rank_data.reduced, tolerance=rank_data.tolerance)
