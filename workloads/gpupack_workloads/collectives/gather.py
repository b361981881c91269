# SPDX-License-Identifier: Apache-2.0
"""Gathers every rank's part on rank 0. The size is that of rank 0's buffer."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import ROOT, Buffers, part
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class Gather:
    """Gather; torch's is out of place only."""

    name: ClassVar[str] = "gather"
    shared: ClassVar[bool] = True
    in_place: ClassVar[tuple[bool, ...]] = (False,)

    def crossings(self, ranks: int) -> float:
        """Return (n-1)/n: the root's own part stays."""
        return (ranks - 1) / ranks

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """Return buffers: a part to send; at the root also the whole to receive."""
        received = elements if rank_data.rank == ROOT else 0
        return Buffers(rank_data.zeros(elements // rank_data.ranks), rank_data.zeros(received))

    def start(self, buffers: Buffers, rank_data: RankData) -> None:
        """Gather at the root."""
        parts = None
        if rank_data.rank == ROOT:
            parts = [part(buffers.receive, rank_data, rank) for rank in range(rank_data.ranks)]
        dist.gather(buffers.send, parts, dst=ROOT)

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Count errors: at the root every part must have its rank's data."""
        if rank_data.rank != ROOT:
            return 0
        return sum(
            count_wrong(part(buffers.receive, rank_data, rank), rank_data.data(rank))
            for rank in range(rank_data.ranks)
        )
