# SPDX-License-Identifier: Apache-2.0
"""A language model's other kernels in 64 bits, on the tensors' device, with error bounds.

Of a number of elements that is summed in 32 bits, N, a sum is off by L sqrt(N) u of the sum of
absolute terms at most, with u = 2^-24 (see `agreement`), and an exponential's argument x by 2 u |x|
after the change of base. Results are rounded once to their type. All of that is of single elements.

The loss is another matter: its logits l are a product's, rounded to the type of x, so that each is
off by

    d = u' |l| + L sqrt(H) u |x| |w|

with the unit u' of that type. The loss is a mean of differences of two such. G is off by d and u'
as shares, and rounded with each chunk of tokens in which sums of G are kept. Shares differ from
element to element without order, and so gradients are judged by whole rows: the length of what a
row of dx (or dweight) is off by, as a share of its own, or of what it would be if its terms had no
direction in common, sqrt(sum of G^2 |w|^2), if that is more: where terms cancel, errors do not.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from gpupack_workloads.reference.agreement import (
    ACCUMULATION_UNIT,
    RESULT_UNITS,
    SAFETY,
    SUBNORMAL_UNITS,
    Agreement,
    furthest,
)

# Below this a GPU's exponential gives zero.
FLUSHED = 2.0**-126
# Of tokens whose logits are there in 64 bits at once: 1 GiB of a vocabulary of 128k.
LOSS_CHUNK = 1024


def compare_rms_norm(
    x: torch.Tensor, weight: torch.Tensor, epsilon: float, y: torch.Tensor
) -> Agreement:
    """Compare y [..., N] computed from x and a weight [N]."""
    exact = functional.rms_norm(x.double(), (x.shape[-1],), weight.double(), epsilon)
    return _judged(y, exact, exact.abs() * sum_unit(x.shape[-1]))


def compare_rms_norm_backward(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    dy: torch.Tensor,
    gradients: tuple[torch.Tensor, torch.Tensor],
) -> list[Agreement]:
    """Compare dx [..., N] and the gradient of the weight [N], in this order."""
    rows, gains = (each.double().reshape(-1, x.shape[-1]) for each in (x, dy))
    count, columns = rows.shape
    scale = (rows.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    rows *= scale
    terms = gains * rows
    g = gains.mul_(weight.double())
    dx = scale * (g - rows * (g * rows).mean(-1, keepdim=True))
    size = scale * (g.abs() + rows.abs() * (g * rows).abs().mean(-1, keepdim=True))
    return [
        _judged(gradients[0].reshape(rows.shape), dx, size * sum_unit(columns)),
        _judged(gradients[1], terms.sum(0), terms.abs().sum(0) * sum_unit(max(count, columns))),
    ]


def compare_rotary(
    x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, y: torch.Tensor, *, back: bool
) -> Agreement:
    """Compare y [B, H, S, D] with x turned by tables [S, D / 2], or turned back."""
    left, right = x.double().chunk(2, dim=-1)
    c, s = cosine.double(), -sine.double() if back else sine.double()
    exact = torch.cat([left * c - right * s, right * c + left * s], dim=-1)
    size = torch.cat(
        [(left * c).abs() + (right * s).abs(), (right * c).abs() + (left * s).abs()], -1
    )
    return _judged(y, exact, size * SAFETY * ACCUMULATION_UNIT)


def compare_swiglu(gate: torch.Tensor, up: torch.Tensor, z: torch.Tensor) -> Agreement:
    """Compare z computed from gate and up."""
    exact = functional.silu(gate.double()) * up.double()
    return _judged(z, exact, exact.abs() * _exponential_unit(gate) + FLUSHED * (1 + up.abs()))


def compare_swiglu_backward(
    gate: torch.Tensor,
    up: torch.Tensor,
    dz: torch.Tensor,
    gradients: tuple[torch.Tensor, torch.Tensor],
) -> list[Agreement]:
    """Compare the gradients of gate and up, in this order."""
    g, s = gate.double(), gate.double().sigmoid()
    by_up, by_gate = dz.double() * up, dz.double() * g * s
    dgate = by_up * s * (1 + g * (1 - s))
    unit = _exponential_unit(gate)
    return [
        _judged(
            gradients[0],
            dgate,
            (by_up * s).abs() * (1 + g.abs()) * unit + FLUSHED * (1 + by_up.abs()),
        ),
        _judged(gradients[1], by_gate, by_gate.abs() * unit + FLUSHED * (1 + dz.abs())),
    ]


@dataclass(frozen=True)
class Loss:
    """A loss and its gradients in 64 bits, with error bounds.

    Attributes:
        loss: the mean over tokens that count.
        dx: [T, H].
        dweight: [V, H].
        dx_size: lengths of the rows of dx if their terms had no direction in common, [T].
        dweight_size: the same of dweight, [V].
        unit: the largest d of all logits.
        loss_bound: of the mean.
    """

    loss: float
    dx: torch.Tensor
    dweight: torch.Tensor
    dx_size: torch.Tensor
    dweight_size: torch.Tensor
    unit: float
    loss_bound: float


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, *, ignored: int = -100
) -> Loss:
    """Return the loss of tokens x [T, H] with a weight [V, H] and targets [T], with gradients."""
    rows, words = x.double(), weight.double()
    lengths, word_lengths = rows.norm(dim=1), words.norm(dim=1)
    count = (targets != ignored).sum().item()
    dx, dweight = torch.zeros_like(rows), torch.zeros_like(words)
    dx_size, dweight_size = torch.zeros_like(lengths), torch.zeros_like(word_lengths)
    name = _name(x)
    unit, loss, bound = 0.0, 0.0, 0.0
    for first in range(0, len(rows), LOSS_CHUNK):
        here = slice(first, first + LOSS_CHUNK)
        known = targets[here] != ignored
        right = targets[here].where(known, 0)[:, None]
        logits = rows[here] @ words.T
        off = (
            logits.abs()
            .mul_(RESULT_UNITS[name])
            .add_(torch.outer(lengths[here], word_lengths), alpha=sum_unit(x.shape[1]))
        )
        unit = max(unit, off.max().item())
        log_sum = logits.logsumexp(1)
        loss += ((log_sum - logits.gather(1, right)[:, 0]) * known).sum().item()
        g = logits.sub_(log_sum[:, None]).exp_()
        bound += (((g * off).sum(1) + off.gather(1, right)[:, 0]) * known).sum().item()
        bound += (log_sum.abs() * known).sum().item() * sum_unit(len(words))
        del off
        g.scatter_add_(1, right, torch.full_like(g[:, :1], -1)).mul_(known[:, None] / max(count, 1))
        dx[here] = g @ words
        dweight += g.T @ rows[here]
        dx_size[here] = (g.square_() @ word_lengths.square()).sqrt_()
        dweight_size += g.T @ lengths[here].square()
    bound = bound / max(count, 1) + sum_unit(len(rows)) * abs(loss) / max(count, 1)
    return Loss(
        loss / count if count else float("nan"),
        dx,
        dweight,
        dx_size,
        dweight_size.sqrt_(),
        unit,
        bound,
    )


def compare_loss(exact: Loss, loss: torch.Tensor) -> Agreement:
    """Compare a loss."""
    return Agreement(error=abs(loss.item() - exact.loss), bound=exact.loss_bound)


def compare_loss_gradients(
    exact: Loss, gradients: tuple[torch.Tensor, torch.Tensor], *, chunks: int
) -> list[Agreement]:
    """Compare gradients of x [T, H] and of the weight [V, H], of sums in so many chunks."""
    share = exact.unit + (3 + chunks) * RESULT_UNITS[_name(gradients[0])]
    return [
        _judged_rows(found, right, size, share)
        for found, right, size in zip(
            gradients, (exact.dx, exact.dweight), (exact.dx_size, exact.dweight_size), strict=True
        )
    ]


def sum_unit(terms: int) -> float:
    """Return by what share of its absolute terms a sum in 32 bits may be off."""
    return float(SAFETY * terms**0.5 * ACCUMULATION_UNIT)


def _exponential_unit(x: torch.Tensor) -> torch.Tensor:
    """Return by what share a sigmoid of x may be off, and a few operations after it."""
    return (SAFETY + 2 * x.double().abs()) * ACCUMULATION_UNIT


def _judged(found: torch.Tensor, exact: torch.Tensor, inner: torch.Tensor) -> Agreement:
    """Judge each element: off by what is lost on the way, and by rounding to its type."""
    name = _name(found)
    bound = inner + exact.abs() * RESULT_UNITS[name] + SUBNORMAL_UNITS[name] + FLUSHED
    return furthest(error=(found.double() - exact).abs(), bound=bound)


def _judged_rows(
    found: torch.Tensor, exact: torch.Tensor, size: torch.Tensor, share: float
) -> Agreement:
    """Judge each row by the length of what it is off by."""
    name = _name(found)
    size = torch.maximum(size, exact.norm(dim=1))
    bound = share * size + SUBNORMAL_UNITS[name] * exact.shape[1] ** 0.5 + FLUSHED
    return furthest(error=(found.double() - exact).norm(dim=1), bound=bound)


def _name(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
