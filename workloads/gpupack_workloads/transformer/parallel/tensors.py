# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism: every rank has some heads, and some columns of each inner part.

All ranks see the whole batch. A block's first products are cut by columns, its last by rows, so
each half of a block ends with one sum over ranks. The head is cut by columns, its logits gathered.
"""

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from gpupack_workloads.transformer.model import Decoder
from gpupack_workloads.transformer.parallel.learner import Single


class Spread(Single):
    """A holder of some heads."""

    def spread(self, module: Decoder) -> nn.Module:
        """Cut the products."""
        mesh = init_device_mesh(self.place.device.type, (self.place.ranks,))
        for block in module.blocks.values():
            parallelize_module(block, mesh, styles())
        parallelize_module(module, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})
        return module


def styles() -> dict[str, ParallelStyle]:
    """Return how each product of a block is cut."""
    first = ("attention.query", "attention.key", "attention.value", "inner.gate", "inner.up")
    last = ("attention.output", "inner.down")
    return {name: ColwiseParallel() for name in first} | {name: RowwiseParallel() for name in last}
