# SPDX-License-Identifier: Apache-2.0
"""Every rank sends to the next and receives from the one before, round in a ring."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class SendRecv:
    """Both directions of a rank's links are busy."""

    name: ClassVar[str] = "send-recv"
    shared: ClassVar[bool] = False
    in_place: ClassVar[tuple[bool, ...]] = (False,)

    def crossings(self, ranks: int) -> float:
        """Return 1, unless there is nobody else."""
        return float(ranks > 1)

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """Two buffers of a size."""
        return Buffers(rank_data.zeros(elements), rank_data.zeros(elements))

    def start(self, buffers: Buffers, rank_data: RankData) -> None:
        """Send and receive at once; a rank alone copies, since gloo does not send to itself."""
        if rank_data.ranks == 1:
            buffers.receive.copy_(buffers.send)
            return
        both = [
            dist.P2POp(dist.isend, buffers.send, (rank_data.rank + 1) % rank_data.ranks),
            dist.P2POp(dist.irecv, buffers.receive, (rank_data.rank - 1) % rank_data.ranks),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """What arrives is the previous rank's."""
        return count_wrong(buffers.receive, rank_data.data((rank_data.rank - 1) % rank_data.ranks))
