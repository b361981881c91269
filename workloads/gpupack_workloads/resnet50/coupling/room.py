# SPDX-License-Identifier: Apache-2.0
"""Memory of the same size on every rank, which all ranks can read."""

from typing import Any, Protocol

import torch
import torch.distributed as dist


class Room(Protocol):
    """One rank's view.

    Attributes:
        mine: this rank's memory, 32-bit floats.
        rank: this rank's place among those who share.
        ranks: how many share.
    """

    mine: torch.Tensor
    rank: int
    ranks: int

    def peer(self, rank: int, start: int, count: int) -> torch.Tensor:
        """Return so many values of a peer's memory."""

    def barrier(self) -> None:
        """Let the current stream wait until every rank's has come here."""


class MappedRoom:
    """Memory of GPUs of one host, mapped into one another (symmetric memory; no multicast)."""

    def __init__(self, elements: int, device: torch.device, group: dist.ProcessGroup) -> None:
        import torch.distributed._symmetric_memory as symmetric  # noqa: PLC0415  only GPUs have it

        self.mine = symmetric.empty(elements, dtype=torch.float32, device=device)
        self._handle: Any = symmetric.rendezvous(self.mine, group)
        self.rank, self.ranks = group.rank(), group.size()

    def peer(self, rank: int, start: int, count: int) -> torch.Tensor:
        """Return so many values of a peer's memory."""
        values: torch.Tensor = self._handle.get_buffer(rank, (count,), torch.float32, start)
        return values

    def barrier(self) -> None:
        """Let the current stream wait until every rank's has come here."""
        self._handle.barrier()
