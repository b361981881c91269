# SPDX-License-Identifier: Apache-2.0
"""Reduce: rank 0 gets the sum (or product, …) of all buffers. torch's is in place only."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import ROOT, Buffers, reduce_op
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class Reduce:
    """Reduce: each byte goes to the rank that sums it; other ranks' buffers are undefined then."""

    name: ClassVar[str] = "reduce"
    shared: ClassVar[bool] = False
    in_place: ClassVar[tuple[bool, ...]] = (True,)

    def crossings(self, ranks: int) -> float:
        """Return 1, or 0 if there is no other rank."""
        return float(ranks > 1)

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """Return one buffer."""
        whole = rank_data.zeros(elements)
        return Buffers(whole, whole)

    def start(self, buffers: Buffers, rank_data: RankData) -> None:
        """Reduce to the root."""
        dist.reduce(buffers.receive, dst=ROOT, op=reduce_op(rank_data))

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Count errors: at the root every position must have the reduction over the ranks."""
        if rank_data.rank != ROOT:
            return 0
        return count_wrong(buffers.receive, rank_data.reduced, tolerance=rank_data.tolerance)
