# SPDX-License-Identifier: Apache-2.0
"""Send and receive: every rank sends to the next and receives from the one before, in a ring."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers
from gpupack_workloads.collectives.rank_data import RankData, count_wrong


class SendRecv:
    """Send and receive; both directions of a rank's links are busy."""

    name: ClassVar[str] = "send-recv"
    shared: ClassVar[bool] = False
    in_place: ClassVar[tuple[bool, ...]] = (False,)

    def crossings(self, ranks: int) -> float:
        """Return 1, or 0 if there is no other rank."""
        return float(ranks > 1)

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """Return two buffers of the same size."""
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
        """Count errors: the received data must be the previous rank's."""
        return count_wrong(buffers.receive, rank_data.data((rank_data.rank - 1) % rank_data.ranks))
