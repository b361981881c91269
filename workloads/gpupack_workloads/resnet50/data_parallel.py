# SPDX-License-Identifier: Apache-2.0
"""Data parallelism: every rank steps with the mean gradient of all.

ddp   torch's DistributedDataParallel around the compiled network.
flat  gradients are gathered into a few long buffers after the backward pass, a buffer is summed
      while the next is filled, and the optimiser reads from them.

A compiled network's gradients come all at once at its end, so that there is nothing to overlap
their sum with. What then counts is that DDP copies each of 161 gradients by a kernel of its own,
and a gathering copy of many tensors takes one. To compile stage by stage and sum the gradients of
a stage during the backward pass of the one before, by NCCL or by copy engines, was slower
(docs/reports/tuning/resnet50.md). Statistics of normalisation stay a rank's own, as usual.
"""

import inspect

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpupack_workloads.distributed.rank import TIMEOUT, Rank
from gpupack_workloads.memory import MIB
from gpupack_workloads.resnet50.objective import Objective, trainer
from gpupack_workloads.resnet50.options import DDP
from gpupack_workloads.resnet50.plan import Plan
from gpupack_workloads.training.steps import Trainer


def coupled(objective: Objective, plan: Plan, rank: Rank, count: int) -> Trainer:
    """Return what trains the replicas of the first ranks as one, and the others each for itself."""
    device = rank.device.torch
    group = dist.new_group(list(range(count)), timeout=TIMEOUT) if count < rank.ranks else None
    if rank.index >= count:
        return trainer(objective, plan, device)
    if plan.coupling == DDP:
        replica = replicated(objective, rank, bucket_mib=plan.bucket_mib, group=group)
        return trainer(objective, plan, device, loss_of=replica)
    flat = Flat(objective, rank, bucket_mib=plan.bucket_mib, group=group)
    return trainer(objective, plan, device, synchronise=flat.synchronise)


def replicated(
    network: nn.Module, rank: Rank, *, bucket_mib: int, group: dist.ProcessGroup | None = None
) -> nn.Module:
    """Return a network wrapped in torch's DDP, over a group of ranks or all."""
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
    """Return the argument with which this torch's DDP does not send buffers with every step."""
    known = inspect.signature(DistributedDataParallel).parameters
    word = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    return {word: False}


class Flat:
    """Long buffers that hold the gradients of a module's parameters, over a group or all ranks."""

    def __init__(
        self,
        module: nn.Module,
        rank: Rank,
        *,
        bucket_mib: int,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.detach(), src=0, group=group)
        self._group, self._ranks = group, dist.get_world_size(group)
        self._buckets = [
            Bucket(group) for group in cut(list(module.parameters()), bucket_mib * MIB)
        ]
        # gloo has no mean.
        self._mean = rank.backend == "nccl"

    def synchronise(self) -> None:
        """Replace gradients by the mean of all ranks'."""
        operation = dist.ReduceOp.AVG if self._mean else dist.ReduceOp.SUM
        works = []
        for bucket in self._buckets:
            bucket.fill()
            works.append(
                dist.all_reduce(bucket.flat, op=operation, group=self._group, async_op=True)
            )
        for bucket, work in zip(self._buckets, works, strict=True):
            work.wait()
            if not self._mean:
                bucket.flat /= self._ranks


class Bucket:
    """One buffer, and each parameter's part of it."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        sizes = [parameter.numel() for parameter in parameters]
        self.flat = torch.empty(sum(sizes), device=parameters[0].device)
        # In the parameters' own memory order, so that copies and updates stay straight.
        self._parts = [
            part.as_strided(parameter.shape, parameter.stride())
            for part, parameter in zip(self.flat.split(sizes), parameters, strict=True)
        ]

    def fill(self) -> None:
        """Gather the gradients, and let the optimiser find them here.

        Raises:
            RuntimeError: the backward pass did not reach all parameters.
        """
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if len(gradients) < len(self._parameters):
            missing = len(self._parameters) - len(gradients)
            raise RuntimeError(f"{missing} parameters have no gradient to exchange")
        torch._foreach_copy_(self._parts, gradients)
        for parameter, part in zip(self._parameters, self._parts, strict=True):
            parameter.grad = part


def cut(parameters: list[nn.Parameter], size_bytes: int) -> list[list[nn.Parameter]]:
    """Return parameters in groups of at least so many bytes, the last ones first."""
    groups: list[list[nn.Parameter]] = [[]]
    held = 0
    for parameter in reversed(parameters):
        if held >= size_bytes:
            groups.append([])
            held = 0
        groups[-1].append(parameter)
        held += parameter.numel() * parameter.element_size()
    return groups
