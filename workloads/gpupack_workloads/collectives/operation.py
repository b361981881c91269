# SPDX-License-Identifier: Apache-2.0
"""Interface of a collective operation."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.distributed as dist

from gpupack_workloads.collectives.rank_data import MISSING, RankData, fill

ROOT = 0
"""The rank that alone sends or receives, in operations that have one."""
TORCH_OPS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "avg": dist.ReduceOp.AVG,
}


@dataclass(frozen=True)
class Buffers:
    """Input and output buffer of a rank; the same buffer if the operation is in place."""

    send: torch.Tensor
    receive: torch.Tensor

    def fill(self, rank_data: RankData) -> None:
        """Write this rank's data; what does not come from elsewhere is noticed."""
        # An unsigned byte wraps it to 255.
        self.receive.fill_(MISSING)
        fill(self.send, rank_data.data(rank_data.rank))


class Operation(Protocol):
    """A collective operation, with sizes as nccl-tests count them.

    Attributes:
        name: as the command line has it.
        shared: whether the buffer is cut into one part per rank.
        in_place: the ways it can be called: out of place, in place.
    """

    name: ClassVar[str]
    shared: ClassVar[bool]
    in_place: ClassVar[tuple[bool, ...]]

    def crossings(self, ranks: int) -> float:
        """Return how often each byte crosses a link: bus bandwidth over algorithm bandwidth."""

    def buffers(self, elements: int, rank_data: RankData, *, in_place: bool) -> Buffers:
        """Return buffers for an operation on this many elements."""

    def start(self, buffers: Buffers, rank_data: RankData) -> None:
        """Run it."""

    def count_wrong(self, buffers: Buffers, rank_data: RankData) -> int:
        """Return how many received elements are wrong."""


def reduce_op(rank_data: RankData) -> dist.ReduceOp:
    """Return torch's name of what reductions do."""
    return TORCH_OPS[rank_data.reduce_op]


def part(whole: torch.Tensor, rank_data: RankData, rank: int | None = None) -> torch.Tensor:
    """Return a rank's part of a buffer; ours if none is named."""
    return whole.chunk(rank_data.ranks)[rank_data.rank if rank is None else rank]


def whole_and_part(
    elements: int, rank_data: RankData, *, in_place: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a buffer, and one for our part of it: in place, that part."""
    whole = rank_data.zeros(elements)
    return whole, part(whole, rank_data) if in_place else rank_data.zeros(
        elements // rank_data.ranks
    )
