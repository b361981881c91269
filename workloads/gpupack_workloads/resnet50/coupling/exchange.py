# SPDX-License-Identifier: Apache-2.0
"""How a long buffer of gradients becomes the mean of all ranks' buffers."""

from typing import ClassVar, Protocol

import torch


class Buffer(Protocol):
    """All ranks begin the same buffers in the same order.

    Attributes:
        early: whether it may begin while the backward pass goes on, without slowing it down.
        flat: the values, 32-bit floats.
    """

    early: ClassVar[bool]
    flat: torch.Tensor

    def begin(self) -> None:
        """Start: what the current stream has in its queue fills the buffer."""

    def end(self) -> None:
        """Let what the current stream does from now on see the mean."""


class Exchange(Protocol):
    """Makes buffers; all ranks must ask for the same."""

    def buffer(self, elements: int) -> Buffer:
        """Return a buffer of so many 32-bit floats."""
