# SPDX-License-Identifier: Apache-2.0
"""How blocks travel between ranks while others are multiplied."""

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

    def room(self, rows: int, columns: int) -> torch.Tensor:
        """Return memory whose blocks can be sent."""

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
        """Send a block of one's room to a rank and receive the same block of another's.

        Args:
            outgoing: a contiguous block of one's own room.
            incoming: where that of `source` shall go.
            target: who gets ours.
            source: whose we get.
            fresh: whether it was computed after `begin`, by the current stream.
        """

    def end(self) -> None:
        """End a product: nobody reads ours any more."""


class Here:
    """An arrival of what is here already."""

    def wait(self) -> None:
        """Nothing to wait for."""
