# SPDX-License-Identifier: Apache-2.0
"""All-reduce: every rank gets the sum (or product, …) of all buffers. torch's is in place only."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers, reduce_op
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class AllReduce:
    """All-reduce: each byte goes to the rank that sums it, and the sum comes back."""

    name: ClassVar[str] = "all-reduce"
    shared: ClassVar[bool] = False
    in_place: ClassVar[tuple[bool, ...]] = (True,)

    def crossings(self, ranks: int) -> float:
        """Return 2(n-1)/n."""
        return 2 * (ranks - 1) / ranks

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """Return one buffer."""
        whole = rank_data.zeros(elements)
        return Buffers(whole, whole)

    def start(self, buffers: Buffers, rank_data: RankData) -> None:
        """Sum."""
        dist.all_reduce(buffers.receive, op=reduce_op(rank_data))

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Count errors: every position must have the reduction over the ranks."""
        return count_wrong(buffers.receive, rank_data.reduced, tolerance=rank_data.tolerance)
