# SPDX-License-Identifier: Apache-2.0
"""Split over K with an all-reduce: every rank ends with the whole of C.

The reduce-scatter of `split_k`, after which rows travel to all ranks while the next are added. That
second half can hide behind no product: (n-1)/n of C arrive at every rank after the last of them.
"""

from typing import ClassVar

import torch

from gpupack_workloads.matmul_multi.exchange import Arrival, Exchange
from gpupack_workloads.matmul_multi.layout import Block, Cuts, cut
from gpupack_workloads.matmul_multi.operands import Operands
from gpupack_workloads.matmul_multi.split_k import SplitK


class SplitKAllReduce(SplitK):
    """A by columns, B by rows, all of C."""

    name: ClassVar[str] = "split-k-all-reduce"

    def __init__(self, operands: Operands, exchange: Exchange, rank: int) -> None:
        super().__init__(operands, exchange, rank)
        self._c_mn = exchange.allocate(operands.edge, operands.size)
        self._whole_mn = operands.empty(operands.ranks, operands.ranks)

    @staticmethod
    def tiles(ranks: int) -> int:
        """Return how many tiles a rank holds: `split_k`'s, and all of C."""
        return SplitK.tiles(ranks) + ranks * ranks

    def result(self) -> Block:
        """Return all of C."""
        every = range(self._ranks)
        return Block(every, every, self._whole_mn, roundings=self._ranks + 1)

    def _add(self, cuts: Cuts) -> None:
        """Add rows piece by piece; each goes to all ranks while the next are added."""
        expected: list[Arrival] = []
        for first, piece in cut(self._c_mn, cuts.chunks):
            last = first + piece.shape[0]
            torch.sum(self._partial[:, first:last], dim=0, out=piece)
            for step in range(1, self._ranks):
                source = (self._rank + step) % self._ranks
                incoming = self._part_of_whole(source)[first:last]
                target = (self._rank - step) % self._ranks
                expected.append(
                    self._exchange.shift(
                        piece, incoming, target=target, source=source, fresh=step == 1
                    )
                )
            self._part_of_whole(self._rank)[first:last] = piece
        for arrival in expected:
            arrival.wait()

    def _part_of_whole(self, rank: int) -> torch.Tensor:
        return self._whole_mn[rank * self._edge : (rank + 1) * self._edge]
