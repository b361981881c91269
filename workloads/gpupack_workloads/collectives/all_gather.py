# SPDX-License-Identifier: Apache-2.0
"""Every rank gets every rank's part. The size is that of what is received."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers, part, whole_and_part
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class AllGather:
    """In place, the part that a rank sends lies where it belongs in what it receives."""

    name: ClassVar[str] = "all-gather"
    shared: ClassVar[bool] = True
    in_place: ClassVar[tuple[bool, ...]] = (False, True)

    def crossings(self, ranks: int) -> float:
        """(n-1)/n: one's own part stays."""
        return (ranks - 1) / ranks

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:
        """A part to send, the whole to receive."""
        whole, own = whole_and_part(elements, rank_data, in_place=in_place)
        return Buffers(own, whole)

    def start(self, buffers: Buffers, rank_data: RankData) -> None:  # noqa: ARG002
        """Gather."""
        dist.all_gather_into_tensor(buffers.receive, buffers.send)

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Every part holds its rank's data."""
        return sum(
            count_wrong(part(buffers.receive, rank_data, rank), rank_data.data(rank))
            for rank in range(rank_data.ranks)
        )
