# SPDX-License-Identifier: Apache-2.0
"""Copies through host memory, the only way without peer access.

Pieces go to pinned memory on the source's stream and on from there on the target's, in two
buffers, so that both directions of the bus are busy at a time. Events keep the order: a piece goes
on when it has arrived, and its buffer is filled again when it has gone on.
"""

from contextlib import ExitStack, closing

import torch

from gpupack_workloads.p2p_cpp.plan import piece_bytes, pieces_of
from gpupack_workloads.p2p_cpp.runtime import (
    Event,
    Pinned,
    Stream,
    copy_from_host,
    copy_to_host,
)

BUFFERS = 2


class Staging:
    """Two buffers in pinned host memory, and an event for each turn of each.

    Args:
        stack: gives everything back when it is closed.
        out: the source's stream.
        into: the target's stream, another one even where both are of one GPU.
        max_bytes: bytes of the largest copy.

    Raises:
        OutOfMemory: there is not as much host memory that can be pinned.
    """

    def __init__(self, stack: ExitStack, out: Stream, into: Stream, max_bytes: int) -> None:
        self._out, self._into = out, into
        self._begun = stack.enter_context(closing(Event(into.device)))
        self._pinned, self._filled, self._emptied = [], [], []
        for _ in range(BUFFERS):
            self._pinned.append(stack.enter_context(closing(Pinned(piece_bytes(max_bytes)))))
            self._filled.append(stack.enter_context(closing(Event(out.device))))
            self._emptied.append(stack.enter_context(closing(Event(into.device))))

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Begin to copy bytes; the target's stream is done when the copy is.

        It begins when that stream has done what it has so far, an earlier copy for one: the buffers
        are empty then.
        """
        self._begun.record(self._into)
        self._out.wait(self._begun)
        to, of = target.data_ptr(), source.data_ptr()
        for number, (first, count) in enumerate(pieces_of(source.numel())):
            turn = number % BUFFERS
            if number >= BUFFERS:
                self._out.wait(self._emptied[turn])
            pinned = self._pinned[turn].address
            copy_to_host(pinned, of + first, count, self._out)
            self._filled[turn].record(self._out)
            self._into.wait(self._filled[turn])
            copy_from_host(to + first, pinned, count, self._into)
            self._emptied[turn].record(self._into)

    def spoil(self) -> None:
        """Overwrite the buffers: what an earlier copy left is not to pass for a later one's."""
        for pinned in self._pinned:
            pinned.spoil()
