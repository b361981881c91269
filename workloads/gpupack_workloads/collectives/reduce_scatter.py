# SPDX-License-Identifier: Apache-2.0
"""Every rank gets its part of the sum of all buffers. The size is that of what is sent."""

from typing import ClassVar

import torch
import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers, whole_and_part
from gpupack_workloads.collectives.place import Place, count_wrong


class ReduceScatter:
    """In place, the sum replaces one's own part of what was sent."""

    name: ClassVar[str] = "reduce-scatter"
    shared: ClassVar[bool] = True
    in_place: ClassVar[tuple[bool, ...]] = (False, True)

    def crossings(self, ranks: int) -> float:
        """(n-1)/n: one's own part stays."""
        return (ranks - 1) / ranks

    def buffers(self, elements: int, place: Place, *, in_place: bool) -> Buffers:
        """The whole to send, a part to receive."""
        whole, own = whole_and_part(elements, place, in_place=in_place)
        return Buffers(whole, own)

    def start(self, buffers: Buffers, place: Place) -> None:  # noqa: ARG002
        """Sum and scatter."""
        dist.reduce_scatter_tensor(buffers.receive, buffers.send)

    def count_wrong(self, buffers: Buffers, place: Place) -> int:
        """Our part holds the sum over ranks at our positions."""
        start = place.rank * buffers.receive.numel()

        def values(first: int, count: int) -> torch.Tensor:
            return place.sum(start + first, count)

        return count_wrong(buffers.receive, values)
