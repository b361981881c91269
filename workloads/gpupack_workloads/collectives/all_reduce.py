# SPDX-License-Identifier: Apache-2.0
"""Every rank gets the sum of all buffers. torch has it in place only."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class AllReduce:
    """Each byte goes to where it is summed, and its sum comes back."""

    name: ClassVar[str] = "all-reduce"
    shared: ClassVar[bool] = False
    in_place: ClassVar[tuple[bool, ...]] = (True,)

    def crossings(self, ranks: int) -> float:
        """2(n-1)/n."""
        return 2 * (ranks - 1) / ranks

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """One buffer."""
        whole = rank_data.zeros(elements)
        return Buffers(whole, whole)

    def start(self, buffers: Buffers, rank_data: RankData) -> None:  # noqa: ARG002
        """Sum."""
        dist.all_reduce(buffers.receive)

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Every position holds the sum over ranks."""
        return count_wrong(buffers.receive, rank_data.sum)
