# SPDX-License-Identifier: Apache-2.0
"""Scatter: every rank gets its part of rank 0's buffer. The size is that of rank 0's buffer."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import ROOT, Buffers, part
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class Scatter:
    """Scatter; torch's is out of place only."""

    name: ClassVar[str] = "scatter"
    shared: ClassVar[bool] = True
    in_place: ClassVar[tuple[bool, ...]] = (False,)

    def crossings(self, ranks: int) -> float:
        """Return (n-1)/n: the root's own part stays."""
        return (ranks - 1) / ranks

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """Return buffers: at the root the whole to send; a part to receive."""
        sent = elements if rank_data.rank == ROOT else 0
        return Buffers(rank_data.zeros(sent), rank_data.zeros(elements // rank_data.ranks))

    def start(self, buffers: Buffers, rank_data: RankData) -> None:
        """Scatter from the root."""
        parts = None
        if rank_data.rank == ROOT:
            parts = [part(buffers.send, rank_data, rank) for rank in range(rank_data.ranks)]
        dist.scatter(buffers.receive, parts, src=ROOT)

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Count errors: the received part must be the root's at our positions."""
        start = rank_data.rank * buffers.receive.numel()
        return count_wrong(buffers.receive, rank_data.data(ROOT, start))
