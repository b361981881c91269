# SPDX-License-Identifier: Apache-2.0
"""A decoder as most are today: RMS norms, rotary positions, grouped heads, gated inner part.

Parameters are fp32; products and what flows between blocks are of the plan's type. Products round
their weights themselves: under autocast norms would return 32 bits, twice the bytes.

Shape legend: B rows, S tokens, W width, V vocabulary, H heads, G key heads, D numbers per head.
"""

from typing import cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.utils.checkpoint import checkpoint

from gpupack_workloads.transformer.operations import Operations, Product, rotation
from gpupack_workloads.transformer.plan import Shape

INITIAL_SPREAD = 0.02


class Linear(nn.Linear):
    """A product with a weight, by the chosen operations, in the type of its input."""

    def __init__(self, columns: int, rows: int, operations: Operations) -> None:
        super().__init__(columns, rows, bias=False)
        self.operations = operations

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x times the weight's transpose."""
        return product_of_shards(self.operations.product, x, self.weight)


def products_of(x: torch.Tensor, *linears: Linear) -> list[torch.Tensor]:
    """Return products of one x; where weights are cut over ranks a layer's own call does more."""
    products = linears[0].operations.products
    weights = [linear.weight for linear in linears]
    if products is None or any(isinstance(weight, DTensor) for weight in weights):
        return [linear(x) for linear in linears]
    return products(x, weights)


class Normalisation(nn.Module):
    """Divides by the root of the mean square, in 32 bits, and scales."""

    def __init__(self, width: int, operations: Operations) -> None:
        super().__init__()
        self.operations = operations
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x normalised, in its own type."""
        return self.operations.pointwise.normalise(x, self.weight)


class Attention(nn.Module):
    """Grouped, causal, with rotary positions."""

    def __init__(self, shape: Shape, operations: Operations) -> None:
        super().__init__()
        self.operations = operations
        self.head_width = shape.head_width
        keys = shape.kv_heads * shape.head_width
        self.query = Linear(shape.width, shape.width, operations)
        self.key = Linear(shape.width, keys, operations)
        self.value = Linear(shape.width, keys, operations)
        self.output = Linear(shape.width, shape.width, operations)

    def forward(self, x_BSW: torch.Tensor) -> torch.Tensor:  # noqa: N803  shape suffix
        """Return what each token takes from those before it."""
        parts = products_of(x_BSW, self.query, self.key, self.value)
        q, k, v = (self.heads(part) for part in parts)
        tables = rotation(x_BSW.shape[1], self.head_width, x_BSW.dtype, x_BSW.device)
        q, k = self.operations.pointwise.rotate(q, k, *tables)
        taken = self.operations.attention(q, k, v)
        return cast("torch.Tensor", self.output(taken.transpose(1, 2).flatten(2)))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """Split numbers into heads: [B, S, H D] to [B, H, S, D]; a rank may have only some."""
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)


class Inner(nn.Module):
    """The feed-forward part: one half gates the other."""

    def __init__(self, shape: Shape, operations: Operations) -> None:
        super().__init__()
        self.operations = operations
        self.gate = Linear(shape.width, shape.inner, operations)
        self.up = Linear(shape.width, shape.inner, operations)
        self.down = Linear(shape.inner, shape.width, operations)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the part's output."""
        opening, value = products_of(x, self.gate, self.up)
        return cast("torch.Tensor", self.down(self.operations.pointwise.gate(opening, value)))


class Block(nn.Module):
    """Attention and the inner part, each normalised before and added after."""

    def __init__(self, shape: Shape, operations: Operations) -> None:
        super().__init__()
        self.attention_norm = Normalisation(shape.width, operations)
        self.attention = Attention(shape, operations)
        self.inner_norm = Normalisation(shape.width, operations)
        self.inner = Inner(shape, operations)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        x = x + self.attention(self.attention_norm(x))
        return cast("torch.Tensor", x + self.inner(self.inner_norm(x)))


class Decoder(nn.Module):
    """The whole network, or some layers of it as a pipeline's stage.

    Layers keep their numbers in a stage, so parameters have the same names in every checkpoint.
    """

    def __init__(
        self, shape: Shape, operations: Operations, *, dtype: torch.dtype, recompute: bool
    ) -> None:
        super().__init__()
        self.operations, self.dtype, self.recompute = operations, dtype, recompute
        self.embedding: nn.Module | None = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleDict(
            {str(layer): Block(shape, operations) for layer in range(shape.layers)}
        )
        self.norm: nn.Module | None = Normalisation(shape.width, operations)
        self.head: nn.Module | None = Linear(shape.width, shape.vocabulary, operations)

    def forward(self, x: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        """Return the mean loss if there are targets, else logits, or what the next stage takes."""
        if self.embedding is not None:
            x = self.embedding(x).to(self.dtype)
        for block in self.blocks.values():
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        if self.norm is None or self.head is None:
            return x
        x = self.norm(x)
        head_loss, weight = self.operations.head_loss, self.head.weight
        # A head that is cut over ranks makes logits that are gathered.
        if targets is not None and head_loss is not None and not isinstance(weight, DTensor):
            return head_loss(x, weight.to(x.dtype), targets)
        x = self.head(x)
        return x if targets is None else self.loss(x, targets)

    def loss(self, logits_BSV: torch.Tensor, targets_BS: torch.Tensor) -> torch.Tensor:  # noqa: N803  shape suffixes
        """Return the mean of the negative logarithms of the right tokens' probabilities."""
        return self.operations.loss(logits_BSV.float().flatten(0, 1), targets_BS.reshape(-1))


def new_decoder(
    shape: Shape,
    operations: Operations,
    *,
    dtype: torch.dtype,
    recompute: bool,
    seed: int,
    device: torch.device,
) -> Decoder:
    """Return an untrained network; one seed gives one network per kind of device."""
    with torch.device("meta"):
        decoder = Decoder(shape, operations, dtype=dtype, recompute=recompute)
    decoder.to_empty(device=device)
    chance = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for parameter in decoder.parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(std=INITIAL_SPREAD, generator=chance)
    return decoder


def use(model: nn.Module, operations: Operations) -> None:
    """Let every part of a network use these operations from now on."""
    for module in model.modules():
        if hasattr(module, "operations"):
            module.operations = operations


def product_of_shards(product: Product, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the product of tensors that are whole, or of which each rank has a part.

    Each rank's kernel takes its own parts. Cut along the weight's rows every rank gets some columns
    of the result, and its share of the input's gradient is one of several to be added. Cut along
    the weight's columns every rank gets a summand of the whole result. torch's DTensor would do the
    same for its own product only.
    """
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
