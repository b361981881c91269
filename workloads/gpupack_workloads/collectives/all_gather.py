# SPDX-License-Identifier: Apache-2.0
"""All-gather: every rank gets every rank's part. The size is that of the output."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers, part, whole_and_part
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class AllGather:
    """All-gather; in place, the part that a rank sends is at its position in the output."""

    name: ClassVar[str] = "all-gather"
    shared: ClassVar[bool] = True
    in_place: ClassVar[tuple[bool, ...]] = (False, True)

    def crossings(self, ranks: int) -> float:
        """Return (n-1)/n: a rank's own part stays."""
        return (ranks - 1) / ranks

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:
        """Return buffers: a part to send, the whole to receive."""
        whole, own = whole_and_part(elements, rank_data, in_place=in_place)
        return Buffers(own, whole)

    def start(self, buffers: Buffers, rank_data: RankData) -> None:  # noqa: ARG002
        """Gather."""
        dist.all_gather_into_tensor(buffers.receive, buffers.send)

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Count errors: every part must have its rank's data."""
        return sum(
            count_wrong(part(buffers.receive, rank_data, rank), rank_data.data(rank))
            for rank in range(rank_data.ranks)
        )
