# SPDX-License-Identifier: Apache-2.0
"""2-D (SUMMA): p x q ranks, each with one block of A, of B and of C from start to end.

Rank (i, j) needs row i of A's blocks and column j of B's: (q-1)/n of A and (p-1)/n of B travel to
it, for 2 x 2 two thirds of what the 1-D layout moves. It begins with what it has; but only ranks
on the diagonal have both factors of a product, the others wait for the first piece of a block of B.
C is the sum of lcm(p, q) products, so each element is rounded as often.
"""

import math
from typing import ClassVar

import torch

from gpupack_workloads.matmul_multi.exchange import ArrivedBlock, Exchange
from gpupack_workloads.matmul_multi.layout import Block, Cuts, Piece, ask, cut, multiply
from gpupack_workloads.matmul_multi.operands import B_T, A, Operands


def shape(ranks: int) -> tuple[int, int]:
    """Return rows and columns of the grid of ranks: as square as can be."""
    rows = next(rows for rows in range(math.isqrt(ranks), 0, -1) if ranks % rows == 0)
    return rows, ranks // rows


class Grid:
    """A, B and C in blocks."""

    name: ClassVar[str] = "grid"

    def __init__(self, operands: Operands, exchange: Exchange, rank: int) -> None:
        self._operands, self._exchange = operands, exchange
        self._rows, self._columns = shape(operands.ranks)
        self._i, self._j = divmod(rank, self._columns)
        tall, wide = operands.ranks // self._rows, operands.ranks // self._columns
        self._c_rows = range(self._i * tall, (self._i + 1) * tall)
        self._c_columns = range(self._j * wide, (self._j + 1) * wide)
        self._a_mk = exchange.allocate(tall * operands.edge, wide * operands.edge)
        self._b_nk = exchange.allocate(wide * operands.edge, tall * operands.edge)
        operands.fill(self._a_mk, A, self._c_rows, self._c_columns)
        operands.fill(self._b_nk, B_T, self._c_columns, self._c_rows)
        self._others_mk = [torch.empty_like(self._a_mk) for _ in range(1, self._columns)]
        self._others_nk = [torch.empty_like(self._b_nk) for _ in range(1, self._rows)]
        self._c_mn = operands.empty(tall, wide)

    @staticmethod
    def tiles(ranks: int) -> int:
        """Return how many tiles a rank holds: a row of blocks of A, a column of B, one of C."""
        rows, columns = shape(ranks)
        return ranks * (columns + rows + 1)

    def multiply(self, cuts: Cuts) -> None:
        """Ask for B's blocks, since some wait for them, then for A's; multiply as they come."""
        self._exchange.begin()
        b = {self._i: [Piece(0, self._b_nk, ArrivedBlock())]} | self._ask_b(cuts.chunks)
        a = {self._j: Piece(0, self._a_mk, ArrivedBlock())} | self._ask_a()
        for turn, part in enumerate(self._order()):
            panel = a[part * self._columns // self._parts]
            panel.arrival.wait()
            for piece in b[part * self._rows // self._parts]:
                piece.arrival.wait()
                self._product(part, panel.values, piece, cuts.width, add=turn > 0)
        self._exchange.end()

    def result(self) -> Block:
        """Return our block of C."""
        return Block(self._c_rows, self._c_columns, self._c_mn, roundings=self._parts)

    @property
    def _parts(self) -> int:
        """Into how many parts K is cut: the fewest with one owner in A and one in B."""
        return math.lcm(self._rows, self._columns)

    def _order(self) -> list[int]:
        """Return the parts of K, first those whose factors are here."""

        def missing(part: int) -> int:
            a_is_here = part * self._columns // self._parts == self._j
            b_is_here = part * self._rows // self._parts == self._i
            return 2 - a_is_here - b_is_here

        return sorted(range(self._parts), key=missing)

    def _ask_a(self) -> dict[int, Piece]:
        """Return other ranks' blocks of our row of A, by their column."""
        found = {}
        for step, other_mk in enumerate(self._others_mk, start=1):
            source, target = (self._j + step) % self._columns, (self._j - step) % self._columns
            (found[source],) = ask(
                self._exchange,
                cut(self._a_mk, 1),
                cut(other_mk, 1),
                target=self._i * self._columns + target,
                source=self._i * self._columns + source,
            )
        return found

    def _ask_b(self, chunks: int) -> dict[int, list[Piece]]:
        """Return other ranks' blocks of our column of B in pieces, by their row."""
        found = {}
        for step, other_nk in enumerate(self._others_nk, start=1):
            source, target = (self._i + step) % self._rows, (self._i - step) % self._rows
            found[source] = ask(
                self._exchange,
                cut(self._b_nk, chunks),
                cut(other_nk, chunks),
                target=target * self._columns + self._j,
                source=source * self._columns + self._j,
            )
        return found

    def _product(
        self, part: int, panel_mk: torch.Tensor, piece: Piece, width: int, *, add: bool
    ) -> None:
        """Multiply one part of K, for the columns of C that belong to a piece of B."""
        k = self._operands.size // self._parts
        a_mk = panel_mk[:, part * k % panel_mk.shape[1] :][:, :k]
        b_nk = piece.values[:, part * k % piece.values.shape[1] :][:, :k]
        c_mn = self._c_mn[:, piece.first : piece.first + b_nk.shape[0]]
        multiply(a_mk, b_nk, c_mn, width=width, add=add)
