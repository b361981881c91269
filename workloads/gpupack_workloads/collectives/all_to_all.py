# SPDX-License-Identifier: Apache-2.0
"""All-to-all: every rank sends a part to every rank. The size is that of a rank's input."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers, part
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class AllToAll:
    """All-to-all; torch's is out of place only."""

    name: ClassVar[str] = "all-to-all"
    shared: ClassVar[bool] = True
    in_place: ClassVar[tuple[bool, ...]] = (False,)

    def crossings(self, ranks: int) -> float:
        """Return (n-1)/n: a rank's own part stays."""
        return (ranks - 1) / ranks

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """Return two buffers of the same size."""
        return Buffers(rank_data.zeros(elements), rank_data.zeros(elements))

    def start(self, buffers: Buffers, rank_data: RankData) -> None:  # noqa: ARG002
        """Exchange."""
        dist.all_to_all_single(buffers.receive, buffers.send)

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Count errors: a rank's part must have its data at our positions."""
        start = rank_data.rank * (buffers.receive.numel() // rank_data.ranks)
        return sum(
            count_wrong(part(buffers.receive, rank_data, rank), rank_data.data(rank, start))
            for rank in range(rank_data.ranks)
        )
