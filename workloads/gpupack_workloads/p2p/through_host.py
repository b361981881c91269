# SPDX-License-Identifier: Apache-2.0
"""Copies through host memory, the only way without peer access.

Pieces go to pinned memory and on from there, in two buffers, so that both directions are busy at a
time: the best that this way can do.
"""

import torch

PIECE_BYTES = 2**25
BUFFERS = 2


class Staging:
    """Pinned buffers, and a stream on each side."""

    def __init__(self, here: torch.device, there: torch.device, size: int) -> None:
        self._words = min(PIECE_BYTES, max(8, size)) // 8
        self._pinned = [
            torch.empty(self._words, dtype=torch.int64, pin_memory=True) for _ in range(BUFFERS)
        ]
        self._here, self._there = here, there
        self._out = torch.cuda.Stream(there)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy words of the owner to the reader, on the reader's current stream."""
        into = torch.cuda.current_stream(self._here)
        self._out.wait_event(into.record_event())
        emptied: list[torch.cuda.Event | None] = [None] * BUFFERS
        for number, (to, of) in enumerate(
            zip(target.split(self._words), source.split(self._words), strict=True)
        ):
            turn = number % BUFFERS
            pinned = self._pinned[turn][: of.numel()]
            filled = self._fetch(pinned, of, emptied[turn])
            into.wait_event(filled)
            to.copy_(pinned, non_blocking=True)
            emptied[turn] = into.record_event()

    def _fetch(
        self, pinned: torch.Tensor, of: torch.Tensor, emptied: torch.cuda.Event | None
    ) -> torch.cuda.Event:
        """Copy a piece to the host as soon as its buffer is free."""
        if emptied is not None:
            self._out.wait_event(emptied)
        with torch.cuda.stream(self._out):
            pinned.copy_(of, non_blocking=True)
            return self._out.record_event()
