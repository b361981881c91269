# SPDX-License-Identifier: Apache-2.0
"""Operations that can be torch's or ours: attention, products, loss with softmax, and the others.

What lies between the products reads and writes much and computes little. Compiled, each is one
kernel forward and one or two back, instead of five to ten; or they are ours as well, and then the
loss comes straight from what the head would make logits of. The loss is the mean of the negative
logarithms of the right tokens' probabilities.

Shape legend: B rows, S tokens of a row, H heads, G key heads, D numbers per head, K and N of a
product, T tokens of a batch, W width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch.nn import functional

from gpupack_kernels.loading import load
from gpupack_workloads.transformer import sdpa

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Products = Callable[[torch.Tensor, Sequence[torch.Tensor]], list[torch.Tensor]]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
HeadLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Two = tuple[torch.Tensor, torch.Tensor]

ROTATION_BASE = 10000.0
EPSILON = 1e-5


@dataclass(frozen=True)
class Pointwise:
    """Pointwise functions: torch's, compiled or not, or ours.

    Attributes:
        normalise: x and a scale to x over its root mean square, in 32 bits, times the scale.
        rotate: q [B, H, S, D], k [B, G, S, D] and tables of cosines and sines to both with pairs
            turned by them.
        gate: silu of the first times the second.
    """

    normalise: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    rotate: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], Two]
    gate: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@cache
def pointwise(*, compiled: bool) -> Pointwise:
    """Return the functions; they are compiled once per process."""
    if not compiled:
        return Pointwise(normalise, rotate, gate)
    return Pointwise(*(torch.compile(f, dynamic=False) for f in (normalise, rotate, gate)))


def normalise(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return x divided by the root of the mean square over the last dimension."""
    whole = functional.rms_norm(x.float(), (x.shape[-1],), scale.float(), EPSILON)
    return whole.to(x.dtype)


def rotate(
    q_BHSD: torch.Tensor,  # noqa: N803  shape suffix
    k_BGSD: torch.Tensor,  # noqa: N803  shape suffix
    cosine: torch.Tensor,
    sine: torch.Tensor,
) -> Two:
    """Turn pairs of numbers, one of each half of a head, by an angle of their position."""

    def turned(x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=-1)

    return turned(q_BHSD), turned(k_BGSD)


def gate(opening: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Let through what the first opens."""
    return functional.silu(opening) * value


@cache
def rotation(
    length: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines [S, D / 2]; later pairs turn more slowly."""
    powers = torch.arange(0, width, 2, device=device) / width
    angles = torch.outer(torch.arange(length, device=device), ROTATION_BASE**-powers)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def by_cross_entropy(logits_TV: torch.Tensor, targets_T: torch.Tensor) -> torch.Tensor:  # noqa: N803  shape suffixes
    """Return torch's own."""
    return functional.cross_entropy(logits_TV, targets_T)


def by_softmax(softmax: Callable[[torch.Tensor], torch.Tensor]) -> Loss:
    """Return the loss through a softmax, so that ours is part of training.

    The logarithm of the sum of exponentials is the largest logit less the logarithm of its
    probability, which is 1/V at least. The right token's own probability has no logarithm once it
    underflows, and no gradient there either.
    """

    def loss(logits_TV: torch.Tensor, targets_T: torch.Tensor) -> torch.Tensor:  # noqa: N803  shape suffixes
        rows_T = torch.arange(len(targets_T), device=targets_T.device)  # noqa: N806  shape suffixes
        largest = logits_TV.max(1)
        # Picked by index: gather would keep the logits for the backward pass, which needs none.
        log_sum_T = largest.values - softmax(logits_TV)[rows_T, largest.indices].log()  # noqa: N806
        return (log_sum_T - logits_TV[rows_T, targets_T]).mean()

    return loss


@dataclass(frozen=True)
class Operations:
    """Operations of one implementation.

    Attributes:
        attention: q [B, H, S, D], k and v [B, G, S, D] to [B, H, S, D], causal.
        loss: logits [T, V] in 32 bits and the right tokens [T] to their mean loss.
        product: x [..., K] and a weight [N, K], which may be of a longer type, to [..., N].
        pointwise: operations between them.
        products: x [..., K] and several weights [N, K] to each [..., N], with one gradient of x;
            None where they are by `product` one after the other.
        head_loss: what comes before the head [T, W], its weight [V, W] and the right tokens [T] to
            their mean loss, without logits; None where it is by `product` and `loss`.
    """

    name: str
    attention: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    loss: Loss
    product: Product
    pointwise: Pointwise
    products: Products | None = None
    head_loss: HeadLoss | None = None


def operations(kernels: str, *, compiled: bool) -> Operations:
    """Return torch's, ours, or all of ours; torch's operations between products may be compiled.

    Args:
        kernels: one of `options.KERNELS`.
        compiled: whether torch's operations between products are compiled.
    """
    if kernels == "all":
        return by_us(our_pointwise(), load("linear_cross_entropy.ops", "linear_cross_entropy"))
    rest = pointwise(compiled=compiled)
    return by_torch(rest) if kernels == "torch" else by_us(rest)


def our_pointwise() -> Pointwise:
    """Return our kernels of the operations between the products."""
    rms_norm = load("rms_norm.ops", "rms_norm")
    return Pointwise(
        normalise=lambda x, scale: rms_norm(x, scale, EPSILON),
        rotate=load("rotary.ops", "rotary"),
        gate=load("swiglu.ops", "swiglu"),
    )


def by_torch(rest: Pointwise) -> Operations:
    """Return what torch has."""
    return Operations(
        name="torch",
        attention=sdpa.attention,
        loss=by_cross_entropy,
        product=lambda x, weight: functional.linear(x, weight.to(x.dtype)),
        pointwise=rest,
    )


def by_us(rest: Pointwise, head_loss: HeadLoss | None = None) -> Operations:
    """Return our kernels."""
    attention = load("attention.ops", "attention")
    softmax = load("softmax.ops", "softmax")
    gemms = load("gemm.ops", "gemms")

    def products(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        flat = gemms(x.reshape(-1, x.shape[-1]), [weight.T for weight in weights])
        return [each.reshape(*x.shape[:-1], each.shape[1]) for each in flat]

    return Operations(
        name="ours" if head_loss is None else "all",
        attention=lambda q, k, v: attention(q, k, v, causal=True),
        loss=by_softmax(softmax),
        product=lambda x, weight: products(x, [weight])[0],
        pointwise=rest,
        products=products,
        head_loss=head_loss,
    )
