# SPDX-License-Identifier: Apache-2.0
"""Split over K: rank r has columns r of A and of Bt at the start, and rows r of C at the end.

Every rank computes a partial sum of the whole of C. It begins with the rows of others, each of
which travels to its owner while the next is computed, and ends with its own, to which it then adds
the ones that came: a reduce-scatter, hidden but for the last addition. Partial sums travel in the
operands' type, and are added in 32 bits.
"""

from typing import ClassVar

import torch

from gpupack_workloads.matmul_multi.exchange import Arrival, Exchange
from gpupack_workloads.matmul_multi.layout import Block, Cuts, cut, multiply
from gpupack_workloads.matmul_multi.operands import B_T, A, Operands


class SplitK:
    """A by columns, B by rows, C by rows."""

    name: ClassVar[str] = "split-k"

    def __init__(self, operands: Operands, exchange: Exchange, rank: int) -> None:
        self._exchange, self._rank, self._edge = exchange, rank, operands.edge
        ranks = self._ranks = operands.ranks
        own, every = range(rank, rank + 1), range(ranks)
        self._a_mk = operands.block(A, every, own)
        self._b_nk = operands.block(B_T, every, own)
        self._sent = [exchange.allocate(operands.edge, operands.size) for _ in range(1, ranks)]
        # The own partial sum, then those that come: one tensor, so that one kernel adds them.
        self._partial = operands.empty(ranks, ranks).view(ranks, operands.edge, operands.size)
        self._c_mn = operands.empty(1, ranks)

    @staticmethod
    def tiles(ranks: int) -> int:
        """Return how many tiles a rank holds: of A, of B, partial sums sent and kept, of C."""
        return 2 * ranks + (ranks - 1) * ranks + ranks * ranks + ranks

    def multiply(self, cuts: Cuts) -> None:
        """Multiply others' rows first, then ours, then add up."""
        self._exchange.begin()
        expected: list[Arrival] = []
        for step, sent in enumerate(self._sent, start=1):
            expected += self._give(step, sent, cuts)
        own_mk = self._rows_of(self._rank)
        multiply(own_mk, self._b_nk, self._partial[0], width=cuts.width)
        for arrival in expected:
            arrival.wait()
        self._add(cuts)
        self._exchange.end()

    def result(self) -> Block:
        """Return our rows of C."""
        own = range(self._rank, self._rank + 1)
        return Block(own, range(self._ranks), self._c_mn, roundings=self._ranks + 1)

    def _add(self, cuts: Cuts) -> None:  # noqa: ARG002  all at once
        """Add the partial sums of our rows."""
        torch.sum(self._partial, dim=0, out=self._c_mn)

    def _give(self, step: int, sent: torch.Tensor, cuts: Cuts) -> list[Arrival]:
        """Compute the rows of a rank piece by piece, and send each."""
        target, source = (self._rank + step) % self._ranks, (self._rank - step) % self._ranks
        rows_mk = self._rows_of(target)
        expected = []
        for first, piece in cut(sent, cuts.chunks):
            last = first + piece.shape[0]
            multiply(rows_mk[first:last], self._b_nk, piece, width=cuts.width)
            incoming = self._partial[step, first:last]
            expected.append(
                self._exchange.shift(piece, incoming, target=target, source=source, fresh=True)
            )
        return expected

    def _rows_of(self, rank: int) -> torch.Tensor:
        return self._a_mk[rank * self._edge : (rank + 1) * self._edge]
