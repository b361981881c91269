# SPDX-License-Identifier: Apache-2.0
"""Exchange of blocks between ranks while others are multiplied."""

from typing import ClassVar, Protocol

import torch


class Arrival(Protocol):
    """A block under way."""

    def wait(self) -> None:
        """Let what is computed from now on wait until the block is here."""


class Exchange(Protocol):
    """All ranks call the same methods in the same order.

    Attributes:
        name: how blocks travel.
    """

    name: ClassVar[str]

    def allocate(self, rows: int, columns: int) -> torch.Tensor:
        """Return a tensor whose blocks can be sent."""

    def begin(self) -> None:
        """Start a product: what ranks hold is ready to be sent."""

    def shift(
        self,
        outgoing: torch.Tensor,
        incoming: torch.Tensor,
        *,
        target: int,
        source: int,
        fresh: bool = False,
    ) -> Arrival:
        """Send a block of one's own buffer to a rank and receive the same block of another's.

        Args:
            outgoing: a contiguous block of one's own buffer.
            incoming: destination of the block of `source`.
            target: rank that gets our block.
            source: rank whose block we get.
            fresh: whether it was computed after `begin`, by the current stream.
        """

    def end(self) -> None:
        """End a product: no other rank reads our blocks any more."""


class ArrivedBlock:
    """A block that has arrived already."""

    def wait(self) -> None:
        """Return at once."""
