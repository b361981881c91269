# SPDX-License-Identifier: Apache-2.0
"""Ways in which every rank has the whole network, shards of it, or parts of each product.

- `Replicas` (DDP): every rank has the whole network, and gradients are averaged as they come.
- `Shards` (FSDP2): every rank keeps a shard of each parameter, its gradient and its moments. A
  block's parameters are gathered before it runs, in the type in which it computes. They are kept
  for the step where there is memory, and freed after each pass elsewhere. Gradients are summed in
  32 bits into shards.
- `Tensors`: every rank has some heads, and some columns of each inner part. All ranks see the whole
  batch. A block's first products are cut by columns, its last by rows, so each half of a block ends
  with one sum over ranks. The head is cut by columns, its logits gathered.
"""

import contextlib

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from gpupack_workloads.devices import Device
from gpupack_workloads.distributed.memory_check import least_free_bytes
from gpupack_workloads.transformer.memory_estimate import keeps_gathered
from gpupack_workloads.transformer.model import Decoder
from gpupack_workloads.transformer.parallel.learner import TYPES, Sharing, Single


class Replicas(Sharing):
    """Data parallelism with a replica on each rank."""

    def spread(self, module: Decoder) -> nn.Module:
        """Wrap the network in DDP: each backward pass ends with the mean gradient of all ranks."""
        device = self.world_rank.device
        wrapped: nn.Module = DistributedDataParallel(
            module,
            device_ids=[device.index] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
        )
        return wrapped

    def part(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """Exchange gradients once, with the last part."""
        kept: contextlib.AbstractContextManager[object] = (
            contextlib.nullcontext() if last else self.network.no_sync()
        )
        return kept


class Shards(Sharing):
    """Data parallelism with shards on each rank. `gathered`: whole parameters for a step."""

    gathered = False

    def spread(self, module: Decoder) -> nn.Module:
        """Shard each block's parameters, then the rest."""
        ranks, device = self.world_rank.ranks, self.world_rank.device
        mesh = init_device_mesh(device.type, (ranks,))
        policy = MixedPrecisionPolicy(
            param_dtype=TYPES[self.plan.dtype], reduce_dtype=torch.float32
        )
        free_bytes = least_free_bytes(Device(device, device.type))
        self.gathered = keeps_gathered(self.plan, ranks, free_bytes)
        for each in (*module.blocks.values(), module):
            fully_shard(each, mesh=mesh, mp_policy=policy, reshard_after_forward=not self.gathered)
        return module

    def part(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """Exchange gradients once, with the last part."""
        self.network.set_requires_gradient_sync(last)
        self.network.set_reshard_after_backward(last or not self.gathered)
        return contextlib.nullcontext()


class Tensors(Single):
    """Tensor parallelism with some heads on each rank."""

    def spread(self, module: Decoder) -> nn.Module:
        """Shard the products."""
        mesh = init_device_mesh(self.world_rank.device.type, (self.world_rank.ranks,))
        for block in module.blocks.values():
            parallelize_module(block, mesh, styles())
        parallelize_module(module, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})
        return module


def styles() -> dict[str, ParallelStyle]:
    """Return how each product of a block is cut."""
    first = ("attention.query", "attention.key", "attention.value", "inner.gate", "inner.up")
    last = ("attention.output", "inner.down")
    return {name: ColwiseParallel() for name in first} | {name: RowwiseParallel() for name in last}
