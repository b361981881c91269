# SPDX-License-Identifier: Apache-2.0
"""Products of which each rank has a part: the same kernel on the local parts, and what that means.

Cut along the weight's rows every rank gets some columns of the result, and its share of the input's
gradient is one of several to be added. Cut along the weight's columns every rank gets a summand of
the whole result. torch's DTensor would do the same for its own product only.
"""

from collections.abc import Callable

import torch
from torch.distributed.tensor import DTensor, Partial, Shard

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def product_of_shards(product: Product, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the product of tensors that are whole, or of which each rank has a part."""
    if not isinstance(weight, DTensor):
        return product(x, weight)
    if not isinstance(x, DTensor):
        raise TypeError("the weight is cut over ranks and the input is not")
    (cut,) = weight.placements
    by_rows = cut == Shard(0)
    mine = x.to_local(grad_placements=[Partial() if by_rows else Shard(x.dim() - 1)])
    local = product(mine, weight.to_local())
    placement = Shard(local.dim() - 1) if by_rows else Partial()
    return DTensor.from_local(local, weight.device_mesh, [placement], run_check=False)
