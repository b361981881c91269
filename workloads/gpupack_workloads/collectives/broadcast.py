# SPDX-License-Identifier: Apache-2.0
"""Every rank gets rank 0's buffer. torch has it in place only."""

from typing import ClassVar

import torch.distributed as dist

from gpupack_workloads.collectives.operation import Buffers
from gpupack_workloads.collectives.place import Place, count_wrong

ROOT = 0


class Broadcast:
    """Each byte goes around once."""

    name: ClassVar[str] = "broadcast"
    shared: ClassVar[bool] = False
    in_place: ClassVar[tuple[bool, ...]] = (True,)

    def crossings(self, ranks: int) -> float:
        """Return 1, unless there is nobody else."""
        return float(ranks > 1)

    def buffers(self, elements: int, place: Place, *, in_place: bool) -> Buffers:  # noqa: ARG002
        """One buffer."""
        whole = place.zeros(elements)
        return Buffers(whole, whole)

    def start(self, buffers: Buffers, place: Place) -> None:  # noqa: ARG002
        """Send from the root."""
        dist.broadcast(buffers.receive, src=ROOT)

    def count_wrong(self, buffers: Buffers, place: Place) -> int:
        """Everything is the root's: what did not come is a rank's own."""
        return count_wrong(buffers.receive, place.data(ROOT))
