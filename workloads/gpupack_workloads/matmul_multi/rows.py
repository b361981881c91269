# SPDX-License-Identifier: Apache-2.0
"""1-D: rank r has rows r of A and of Bt at the start, and rows r of C at the end.

It multiplies with its own part of B while the next rank's comes, and so on round: the transfer of
(n-1)/n of B hides behind products, the first of which waits for nothing. Each product is over the
whole of K, so that nothing is added up and each element is rounded once.
"""

from typing import ClassVar

import torch

from gpupack_workloads.matmul_multi.exchange import Exchange
from gpupack_workloads.matmul_multi.layout import Block, Cuts, Piece, ask, cut, multiply
from gpupack_workloads.matmul_multi.operands import B_T, A, Operands


class Rows:
    """A and C by rows, B gathered piece by piece."""

    name: ClassVar[str] = "rows"

    def __init__(self, operands: Operands, exchange: Exchange, rank: int) -> None:
        self._operands, self._exchange, self._rank = operands, exchange, rank
        ranks = self._ranks = operands.ranks
        own, every = range(rank, rank + 1), range(ranks)
        self._a_mk = operands.block(A, own, every)
        self._own_nk = exchange.allocate(operands.edge, operands.size)
        operands.fill(self._own_nk, B_T, own, every)
        self._others_nk = [operands.empty(1, ranks) for _ in range(1, ranks)]
        self._c_mn = operands.empty(1, ranks)

    @staticmethod
    def tiles(ranks: int) -> int:
        """Return how many tiles a rank holds: rows of A, of B and of C, and others' of B."""
        return 2 * ranks + ranks * ranks

    def multiply(self, cuts: Cuts) -> None:
        """Ask for everything at once, in the order in which it is needed."""
        self._exchange.begin()
        expected = [
            (step, piece)
            for step, other_nk in enumerate(self._others_nk, start=1)
            for piece in self._ask(step, other_nk, cuts.chunks)
        ]
        self._product(0, 0, self._own_nk, cuts.width)
        for step, piece in expected:
            piece.arrival.wait()
            self._product(step, piece.first, piece.values, cuts.width)
        self._exchange.end()

    def result(self) -> Block:
        """Return our rows of C."""
        own = range(self._rank, self._rank + 1)
        return Block(own, range(self._ranks), self._c_mn, roundings=1)

    def _ask(self, step: int, other_nk: torch.Tensor, chunks: int) -> list[Piece]:
        """Ask for the part of the rank that many steps on."""
        return ask(
            self._exchange,
            cut(self._own_nk, chunks),
            cut(other_nk, chunks),
            target=(self._rank - step) % self._ranks,
            source=(self._rank + step) % self._ranks,
        )

    def _product(self, step: int, first: int, piece_nk: torch.Tensor, width: int) -> None:
        """Fill the columns of C that belong to a piece of B."""
        start = (self._rank + step) % self._ranks * self._operands.edge + first
        columns = self._c_mn[:, start : start + piece_nk.shape[0]]
        multiply(self._a_mk, piece_nk, columns, width=width)
