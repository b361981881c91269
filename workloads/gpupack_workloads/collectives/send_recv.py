# SPDX-License-Identifier: Apache-2.0
"""Every rank sends to the next and receives from the one before, round in a ring."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers
from gpupack_workloads.collectives.place import Place, count_wrong


class SendRecv:
    """Both directions of a rank's links are busy."""

    name: ClassVar[str] = "send-recv"
    shared: ClassVar[bool] = False
    in_place: ClassVar[tuple[bool, ...]] = (False,)

    def crossings(self, ranks: int) -> float:
        """Return 1, unless there is nobody else."""
        return float(ranks > 1)

    def buffers(self, elements: int, place: Place, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """Two buffers of a size."""
        return Buffers(place.zeros(elements), place.zeros(elements))

    def start(self, buffers: Buffers, place: Place) -> None:
        """Send and receive at once; a rank alone copies, since gloo does not send to itself."""
        if place.ranks == 1:
            buffers.receive.copy_(buffers.send)
            return
        both = [
            dist.P2POp(dist.isend, buffers.send, (place.rank + 1) % place.ranks),
            dist.P2POp(dist.irecv, buffers.receive, (place.rank - 1) % place.ranks),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def count_wrong(self, buffers: Buffers, place: Place) -> int:
        """What arrives is the previous rank's."""
        return count_wrong(buffers.receive, place.data((place.rank - 1) % place.ranks))
