# SPDX-License-Identifier: Apache-2.0
"""Means by the backend's all-reduce: NCCL between GPUs, whatever links them, gloo between CPUs."""

from typing import ClassVar, cast

import torch
import torch.distributed as dist

from gpupack_workloads.distributed.rank import Rank


class Collective:
    """An exchange over a group of ranks, or all."""

    def __init__(self, rank: Rank, group: dist.ProcessGroup | None = None) -> None:
        self._device, self._group = rank.device.torch, group
        # gloo has no mean.
        self._has_mean = rank.backend == "nccl"

    def buffer(self, elements: int) -> "Reduced":
        """Return a buffer."""
        flat = torch.empty(elements, device=self._device)
        return Reduced(flat, self._group, has_mean=self._has_mean)


class Reduced:
    """A buffer that one all-reduce replaces."""

    early: ClassVar[bool] = False

    def __init__(
        self, flat: torch.Tensor, group: dist.ProcessGroup | None, *, has_mean: bool
    ) -> None:
        self.flat, self._group, self._has_mean = flat, group, has_mean
        self._work: dist.Work | None = None

    def begin(self) -> None:
        """Start the all-reduce."""
        operation = dist.ReduceOp.AVG if self._has_mean else dist.ReduceOp.SUM
        work = dist.all_reduce(self.flat, op=operation, group=self._group, async_op=True)
        self._work = cast("dist.Work", work)

    def end(self) -> None:
        """Wait for it."""
        if self._work is not None:
            self._work.wait()
        if not self._has_mean:
            self.flat /= dist.get_world_size(self._group)
