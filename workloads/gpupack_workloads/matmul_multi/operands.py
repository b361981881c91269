# SPDX-License-Identifier: Apache-2.0
"""Matrices of normal numbers; every rank can make every block.

A matrix is a grid of ranks x ranks tiles, each from a seed of its own. So a rank makes the blocks
that it holds at the start without any transfer, and the check makes all others again: what it
compares with has not travelled.
"""

from dataclasses import dataclass

import torch

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.seeds import generator_seed

A, B_T = 0, 1


@dataclass(frozen=True)
class Operands:
    """A and the transpose of B.

    Attributes:
        size: rows and columns of the whole.
        ranks: tiles along each side.
        dtype: type of the elements.
        device: where blocks are made.
        seed: seed of both matrices.
    """

    size: int
    ranks: int
    dtype: torch.dtype
    device: torch.device
    seed: int

    def __post_init__(self) -> None:
        """Refuse a size that does not divide into equal tiles."""
        if self.size % self.ranks:
            raise BadArgument(f"--size {self.size} is no multiple of {self.ranks} ranks")

    @property
    def edge(self) -> int:
        """Rows and columns of a tile."""
        return self.size // self.ranks

    def tile(self, matrix: int, row: int, column: int) -> torch.Tensor:
        """Return one tile."""
        number = ((self.seed * 2 + matrix) * self.ranks + row) * self.ranks + column
        chance = torch.Generator(self.device).manual_seed(generator_seed(number))
        return torch.randn(
            (self.edge, self.edge), generator=chance, device=self.device, dtype=self.dtype
        )

    def fill(self, block: torch.Tensor, matrix: int, rows: range, columns: range) -> torch.Tensor:
        """Write tiles to a block of their size; return it."""
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                place = block[i * self.edge : (i + 1) * self.edge]
                place[:, j * self.edge : (j + 1) * self.edge] = self.tile(matrix, row, column)
        return block

    def block(self, matrix: int, rows: range, columns: range) -> torch.Tensor:
        """Return a block of tiles."""
        return self.fill(self.empty(len(rows), len(columns)), matrix, rows, columns)

    def empty(self, rows: int, columns: int) -> torch.Tensor:
        """Return an empty tensor for a block of this many tiles."""
        return torch.empty(
            (rows * self.edge, columns * self.edge), device=self.device, dtype=self.dtype
        )
