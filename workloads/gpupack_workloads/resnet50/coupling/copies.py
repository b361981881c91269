# SPDX-License-Identifier: Apache-2.0
"""Means by copies out of peers' memory, beside whatever the GPU computes.

A buffer has a piece for each rank. Every rank copies its own piece out of all peers' buffers, adds
them up, and copies the other pieces, finished, out of their owners' buffers: as much traffic as a
ring's, 2 (n - 1) / n of the buffer. Copies of whole pieces run on the copy engines. What takes a
multiprocessor is one small addition, and barriers of one warp a peer.

A piece is added up by one rank alone, so all ranks get the same bits.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import ClassVar

import torch

from gpupack_workloads.resnet50.coupling.room import Room

HIGH = -1
# So that every piece starts at a multiple of 128 bytes.
ALIGNMENT = 32


class Copies:
    """An exchange between GPUs of one host.

    Args:
        ranks: how many take part.
        device: where the buffers are.
        new_room: makes shared memory for so many values.
    """

    def __init__(self, ranks: int, device: torch.device, new_room: Callable[[int], Room]) -> None:
        self._ranks, self._new_room = ranks, new_room
        self._aside = Aside(device)

    def buffer(self, elements: int) -> "Copied":
        """Return a buffer."""
        each = piece_size(elements, self._ranks)
        return Copied(self._new_room(each * self._ranks), elements, self._aside)


class Copied:
    """A buffer that copies replace."""

    early: ClassVar[bool] = True

    def __init__(self, room: Room, elements: int, aside: "Aside") -> None:
        self.flat = room.mine[:elements]
        self._room, self._aside = room, aside
        # What lies beyond the values is added up as well.
        room.mine[elements:].zero_()
        self._each = room.mine.numel() // room.ranks
        self._arrived = room.mine.new_empty((room.ranks - 1, self._each))

    def begin(self) -> None:
        """Put all steps into a queue of their own."""
        with self._aside.after_the_current():
            self._room.barrier()
            self._add_up()
            # From here on all pieces are finished, and nobody reads the parts of another one's.
            self._room.barrier()
            self._collect()
            # And now nobody reads ours any more.
            self._room.barrier()

    def end(self) -> None:
        """Let the current stream wait for the last step."""
        self._aside.join()

    def _add_up(self) -> None:
        """Make this rank's piece the mean of all ranks'."""
        own = self._room.rank * self._each
        for arrived, peer in zip(self._arrived, self._peers(), strict=True):
            arrived.copy_(self._room.peer(peer, own, self._each))
        piece = self._room.mine[own : own + self._each]
        piece.add_(self._arrived.sum(0)).div_(self._room.ranks)

    def _collect(self) -> None:
        """Fetch the other pieces from those who made them."""
        for peer in self._peers():
            start = peer * self._each
            finished = self._room.peer(peer, start, self._each)
            self._room.mine[start : start + self._each].copy_(finished)

    def _peers(self) -> list[int]:
        """Return the other ranks, each rank beginning with another one."""
        rank, ranks = self._room.rank, self._room.ranks
        return [(rank + step) % ranks for step in range(1, ranks)]


class Aside:
    """A stream beside the current one; on CPUs everything has its turn."""

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._stream = torch.cuda.Stream(device, priority=HIGH) if on_gpu else None

    @contextlib.contextmanager
    def after_the_current(self) -> Iterator[None]:
        """Queue work behind what the current stream has in its queue."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Let the current stream wait for everything queued here."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


def piece_size(elements: int, ranks: int) -> int:
    """Return the size of each rank's piece: together they hold all, aligned."""
    return -(-elements // (ranks * ALIGNMENT)) * ALIGNMENT
