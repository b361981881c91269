# SPDX-License-Identifier: Apache-2.0
"""Interface of a way to split the product."""

import itertools
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from gpupack_workloads.matmul_multi.exchange import Arrival, Exchange


@dataclass(frozen=True)
class Block:
    """The block of C that a rank ends with, in tiles.

    Attributes:
        rows: its rows of tiles.
        columns: its columns of tiles.
        values: its elements.
        roundings: how often an element was rounded to its type.
    """

    rows: range
    columns: range
    values: torch.Tensor
    roundings: int


@dataclass(frozen=True)
class Cuts:
    """Numbers of pieces.

    Attributes:
        chunks: pieces of a block that travels.
        width: columns of C that one product computes.
    """

    chunks: int
    width: int


class Layout(Protocol):
    """A layout: operands are at their start positions; every transfer is within `multiply`.

    Attributes:
        name: as the command line has it.
    """

    name: ClassVar[str]

    @staticmethod
    def tiles(ranks: int) -> int:
        """Return how many tiles a rank holds, what comes from others included."""

    def multiply(self, cuts: Cuts) -> None:
        """Compute this rank's block of C."""

    def result(self) -> Block:
        """Return what was computed last."""


@dataclass(frozen=True)
class Piece:
    """Rows of another rank's block.

    Attributes:
        first: where in the block they begin.
        values: where they are once they have arrived.
        arrival: their being here, or under way.
    """

    first: int
    values: torch.Tensor
    arrival: Arrival


Pieces = list[tuple[int, torch.Tensor]]


def cut(block: torch.Tensor, chunks: int) -> Pieces:
    """Cut a block into pieces of rows: first row and piece."""
    pieces = torch.tensor_split(block, min(chunks, block.shape[0]))
    firsts = itertools.accumulate((piece.shape[0] for piece in pieces[:-1]), initial=0)
    return list(zip(firsts, pieces, strict=True))


def multiply(
    a_mk: torch.Tensor, b_nk: torch.Tensor, c_mn: torch.Tensor, *, width: int, add: bool = False
) -> None:
    """Compute C = A @ B, or add it to C, so many columns at a time."""
    for first in range(0, b_nk.shape[0], width):
        b_kn = b_nk[first : first + width].T
        columns = c_mn[:, first : first + width]
        if add:
            torch.addmm(columns, a_mk, b_kn, out=columns)
        else:
            torch.mm(a_mk, b_kn, out=columns)


def ask(
    exchange: Exchange, own: Pieces, others: Pieces, *, target: int, source: int
) -> list[Piece]:
    """Exchange a block piece by piece."""
    return [
        Piece(first, other, exchange.shift(piece, other, target=target, source=source))
        for (first, piece), (_, other) in zip(own, others, strict=True)
    ]
