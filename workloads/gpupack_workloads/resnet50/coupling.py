# SPDX-License-Identifier: Apache-2.0
"""How replicas stay one: every rank steps with the mean gradient of all.

ddp   torch's DistributedDataParallel.
flat  as soon as the gradients of a segment are there, they are gathered into a long buffer, which
      is summed while the backward pass goes on; the optimiser reads from it.

A compiled segment hands over all its gradients at once. DDP copies each of 161 by a kernel of its
own; a gathering copy of many tensors takes one kernel. Statistics of normalisation stay a rank's
own, as usual.
"""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.training.memory import MIB


def replicated(
    network: nn.Module, rank: Rank, *, bucket_mib: int, group: dist.ProcessGroup | None = None
) -> nn.Module:
    """Wrap a network in torch's DDP, over a group of ranks or all."""
    wrapped: nn.Module = DistributedDataParallel(
        network,
        device_ids=None if rank.device.simulated else [rank.device.torch.index],
        bucket_cap_mb=bucket_mib,
        process_group=group,
        gradient_as_bucket_view=True,
        static_graph=True,
        **without_buffers(),
    )
    return wrapped


def without_buffers() -> dict[str, bool]:
    """Return what tells this torch's DDP not to send buffers with every step."""
    known = inspect.signature(DistributedDataParallel).parameters
    word = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    return {word: False}


class Flat:
    """Long buffers for the gradients of a network's segments, over a group of ranks or all.

    Every backward pass must reach all parameters, and be followed by `synchronise`.

    Args:
        segments: modules in the order of the forward pass; no buffer spans two of them.
        rank: this process.
        bucket_mib: a segment with more gradients than this gets several buffers.
        group: the ranks that take part.
    """

    def __init__(
        self,
        segments: Iterable[nn.Module],
        rank: Rank,
        *,
        bucket_mib: int,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        # gloo has no mean.
        exchange = Exchange(group, mean=rank.backend == "nccl")
        self._buckets = []
        for segment in segments:
            for tensor in (*segment.parameters(), *segment.buffers()):
                dist.broadcast(tensor.detach(), src=0, group=group)
            for parameters in cut(list(segment.parameters()), bucket_mib * MIB):
                self._buckets.append(Bucket(parameters, exchange))

    def synchronise(self) -> None:
        """Replace gradients by the mean of all ranks'."""
        for bucket in self._buckets:
            bucket.finish()

    def close(self) -> None:
        """Leave the gradients of later backward passes alone."""
        for bucket in self._buckets:
            bucket.close()


@dataclass(frozen=True)
class Exchange:
    """Sums buffers over a group; `mean` says whether the backend divides by the ranks itself."""

    group: dist.ProcessGroup | None
    mean: bool

    def begin(self, flat: torch.Tensor) -> dist.Work:
        """Start a sum in place."""
        operation = dist.ReduceOp.AVG if self.mean else dist.ReduceOp.SUM
        work = dist.all_reduce(flat, op=operation, group=self.group, async_op=True)
        return cast("dist.Work", work)

    def end(self, work: dist.Work, flat: torch.Tensor) -> None:
        """Let what follows see the mean."""
        work.wait()
        if not self.mean:
            flat /= dist.get_world_size(self.group)


class Bucket:
    """One buffer, and each parameter's part of it."""

    def __init__(self, parameters: list[nn.Parameter], exchange: Exchange) -> None:
        self._parameters, self._exchange = parameters, exchange
        sizes = [parameter.numel() for parameter in parameters]
        self._flat = torch.empty(sum(sizes), device=parameters[0].device)
        # In the parameters' own memory order, so that copies and updates stay straight.
        self._parts = [
            part.as_strided(parameter.shape, parameter.stride())
            for part, parameter in zip(self._flat.split(sizes), parameters, strict=True)
        ]
        self._missing = len(parameters)
        self._work: dist.Work | None = None
        self._hooks = [p.register_post_accumulate_grad_hook(self._arrived) for p in parameters]

    def _arrived(self, _: torch.Tensor) -> None:
        """Count a gradient; the last one starts the sum."""
        self._missing -= 1
        if self._missing == 0:
            self._fill()
            self._work = self._exchange.begin(self._flat)

    def _fill(self) -> None:
        """Gather the gradients, and let the optimiser find them here."""
        torch._foreach_copy_(self._parts, [parameter.grad for parameter in self._parameters])
        for parameter, part in zip(self._parameters, self._parts, strict=True):
            parameter.grad = part

    def finish(self) -> None:
        """Wait for the sum, and for the next backward pass.

        Raises:
            RuntimeError: the backward pass did not reach all parameters.
        """
        if self._work is None:
            raise RuntimeError(f"{self._missing} parameters have no gradient to exchange")
        self._exchange.end(self._work, self._flat)
        self._missing, self._work = len(self._parameters), None

    def close(self) -> None:
        """Forget the parameters."""
        for hook in self._hooks:
            hook.remove()


def cut(parameters: list[nn.Parameter], size_bytes: int) -> list[list[nn.Parameter]]:
    """Return parameters in groups of at least so many bytes, the last ones first."""
    groups: list[list[nn.Parameter]] = []
    held = size_bytes
    for parameter in reversed(parameters):
        if held >= size_bytes:
            groups.append([])
            held = 0
        groups[-1].append(parameter)
        held += parameter.numel() * parameter.element_size()
    return groups
