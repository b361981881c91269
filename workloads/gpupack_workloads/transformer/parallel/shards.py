# SPDX-License-Identifier: Apache-2.0
"""FSDP2: every rank keeps a shard of each parameter, its gradient and its optimiser state.

A block's parameters are gathered before it runs, in the type in which it computes, and forgotten
after it; gradients are summed in 32 bits into shards.
"""

import contextlib

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from gpupack_workloads.transformer.model import Decoder
from gpupack_workloads.transformer.parallel.learner import TYPES, Sharing


class Spread(Sharing):
    """A holder of shards."""

    def spread(self, module: Decoder) -> nn.Module:
        """Cut each block's parameters, then what is left."""
        mesh = init_device_mesh(self.place.device.type, (self.place.ranks,))
        policy = MixedPrecisionPolicy(
            param_dtype=TYPES[self.plan.dtype], reduce_dtype=torch.float32
        )
        for block in module.blocks.values():
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(module, mesh=mesh, mp_policy=policy)
        return module

    def part(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """Exchange gradients once, with the last part."""
        self.network.set_requires_gradient_sync(last)
        return contextlib.nullcontext()
