# SPDX-License-Identifier: Apache-2.0
"""Blocks travel by copies out of peers' memory.

The GPUs of one host map one another's memory (torch's symmetric memory; no multicast), and a
receiver copies what it needs on a stream of its own. Copies run on the copy engines: they take no
multiprocessor from the product, as NCCL's kernels would.
"""

from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

HIGH = -1


class CopyEngine:
    """An exchange between GPUs of one host."""

    name: ClassVar[str] = "copy engine"

    def __init__(self, group: dist.ProcessGroup, device: torch.device, dtype: torch.dtype) -> None:
        self._group, self._device, self._dtype = group, device, dtype
        self._stream = torch.cuda.Stream(device, priority=HIGH)
        self._buffers: list[tuple[torch.Tensor, Any]] = []

    def allocate(self, rows: int, columns: int) -> torch.Tensor:
        """Return memory that every rank maps; all ranks must allocate the same."""
        buffer = symmetric.empty((rows, columns), dtype=self._dtype, device=self._device)
        self._buffers.append((buffer, symmetric.rendezvous(buffer, self._group)))
        return buffer

    def begin(self) -> None:
        """Wait on the copies' stream until every rank has come here."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        self._barrier(self._stream)

    def shift(
        self,
        outgoing: torch.Tensor,
        incoming: torch.Tensor,
        *,
        target: int,  # noqa: ARG002  the target fetches ours
        source: int,
        fresh: bool = False,
    ) -> "Copied":
        """Copy from the source; what is fresh there must be ready first."""
        if fresh:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            self._barrier(self._stream)
        with torch.cuda.stream(self._stream):
            incoming.copy_(self._peer(outgoing, source))
            return Copied(self._stream.record_event())

    def end(self) -> None:
        """Wait until every rank has copied."""
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)
        self._barrier(current)

    def _barrier(self, stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            self._buffers[0][1].barrier()

    def _peer(self, block: torch.Tensor, rank: int) -> torch.Tensor:
        """Return a peer's memory in the place that this block has in ours."""
        storage = block.untyped_storage().data_ptr()
        for buffer, handle in self._buffers:
            if buffer.untyped_storage().data_ptr() == storage:
                peer: torch.Tensor = handle.get_buffer(
                    rank, block.shape, block.dtype, block.storage_offset() - buffer.storage_offset()
                )
                return peer
        raise ValueError("the block is in no buffer of this exchange")


class Copied:
    """A copy in the queue of a stream."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def wait(self) -> None:
        """Let the current stream wait for it."""
        self._event.wait()
