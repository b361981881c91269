# SPDX-License-Identifier: Apache-2.0
"""Broadcast: every rank gets rank 0's buffer. torch's is in place only."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import ROOT, Buffers
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class Broadcast:
    """Broadcast: each byte goes to every rank once."""

    name: ClassVar[str] = "broadcast"
    shared: ClassVar[bool] = False
    in_place: ClassVar[tuple[bool, ...]] = (True,)

    def crossings(self, ranks: int) -> float:
        """Return 1, or 0 if there is no other rank."""
        return float(ranks > 1)

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """Return one buffer."""
        whole = rank_data.zeros(elements)
        return Buffers(whole, whole)

    def start(self, buffers: Buffers, rank_data: RankData) -> None:  # noqa: ARG002
        """Send from the root."""
        dist.broadcast(buffers.receive, src=ROOT)

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Count errors: all data must be the root's; missing data are the rank's own."""
        return count_wrong(buffers.receive, rank_data.data(ROOT))
