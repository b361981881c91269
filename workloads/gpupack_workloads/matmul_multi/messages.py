# SPDX-License-Identifier: Apache-2.0
"""Exchange of blocks as messages: NCCL between GPUs, over any link; gloo between CPUs."""

from typing import ClassVar

import torch
import torch.distributed as dist

from gpupack_workloads.matmul_multi.exchange import Arrival, ArrivedBlock


class Messages:
    """An exchange by send and receive."""

    name: ClassVar[str] = "messages"

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype

    def allocate(self, rows: int, columns: int) -> torch.Tensor:
        """Return memory; a message can come from anywhere."""
        return torch.empty((rows, columns), device=self._device, dtype=self._dtype)

    def begin(self) -> None:
        """Do nothing: a send waits for what its stream computed before."""

    def shift(
        self,
        outgoing: torch.Tensor,
        incoming: torch.Tensor,
        *,
        target: int,
        source: int,
        fresh: bool = False,  # noqa: ARG002  a send waits for what its stream computed before
    ) -> Arrival:
        """Send and receive at once."""
        if target == source == dist.get_rank():
            incoming.copy_(outgoing)
            return ArrivedBlock()
        both = [
            dist.P2POp(dist.isend, outgoing, target),
            dist.P2POp(dist.irecv, incoming, source),
        ]
        return Received(dist.batch_isend_irecv(both))

    def end(self) -> None:
        """Do nothing: all sent blocks have been received."""


class Received:
    """Messages under way."""

    def __init__(self, works: list[dist.Work]) -> None:
        self._works = works

    def wait(self) -> None:
        """Wait: on a GPU the current stream, on a CPU the caller."""
        for work in self._works:
            work.wait()
