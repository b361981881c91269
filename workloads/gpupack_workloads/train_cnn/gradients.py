# SPDX-License-Identifier: Apache-2.0
"""Checks that techniques do not change the gradient.

Accumulation must give the gradient of the whole batch, up to the order of 32-bit sums. Half
precision with a scaled loss must come close to it. So must every technique in each parameter by
itself: the last layer has nine tenths of the whole length, and would hide that the first has none.
Without scaling many elements are zero: they are counted both ways, to show what scaling is for.
"""

from dataclasses import dataclass, replace

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.train_cnn.images import Images
from gpupack_workloads.train_cnn.learning import batches, cut, new_network, new_trainer
from gpupack_workloads.train_cnn.plan import Plan, Technique, techniques
from gpupack_workloads.training.precision import Precision

# Relative to the gradient's length. Sums of 32-bit numbers in another order; and 2^-11 in 7 layers,
# where rounding also flips choices of max-pooling, each of which moves a whole element.
ACCUMULATION_BOUND = 1e-3
AMP_BOUND = 0.1
# The same for a single parameter, by its own length. Choices of max-pooling that flip, with other
# algorithms in 32 bits too, show most in the first layers: by up to 0.13 in half precision (width
# 8, batches of 4 to 32). A parameter without a gradient is 1 away, as is a sum of two for a mean.
PARAMETER_BOUNDS = {"fp32": 0.05, "fp16": 0.3}

Gradient = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Distances from the whole batch's 32-bit gradient, relative to its length.

    Attributes:
        parameter_error: error of the furthest parameter, over all techniques in 32 bits.
        amp_parameter_error: the same, over those in half precision.
    """

    accumulation_error: float
    amp_error: float
    parameter_error: float
    amp_parameter_error: float
    amp_zero_share: float
    unscaled_zero_share: float


def compare(plan: Plan, train: Images, device: torch.device) -> Gradients:
    """Compare one batch's gradient by every technique.

    Raises:
        WrongResult: one of them is another gradient.
    """
    plain = Technique(name="fp32")
    exact = gradient(plain, plan, train, device)
    parts = replace(plain, name="fp32 accumulation", parts=plan.accumulate)
    others = [parts, *techniques(plan)[1:]]
    found = {way.name: gradient(way, plan, train, device) for way in others}
    apart = {"fp32": 0.0, "fp16": 0.0}
    for way in others:
        kind = way.precision.name
        error = each_near(way.name, found[way.name], exact, PARAMETER_BOUNDS[kind])
        apart[kind] = max(apart[kind], error)
    unscaled = Technique(name="unscaled", precision=Precision("fp16", scaled=False))
    bare = gradient(unscaled, plan, train, device)
    whole, half = joined(exact), joined(found["amp"])
    return Gradients(
        accumulation_error=near(
            "accumulation", joined(found[parts.name]), whole, ACCUMULATION_BOUND
        ),
        amp_error=near("AMP", half, whole, AMP_BOUND),
        parameter_error=apart["fp32"],
        amp_parameter_error=apart["fp16"],
        amp_zero_share=zero_share(half),
        unscaled_zero_share=zero_share(joined(bare)),
    )


def gradient(technique: Technique, plan: Plan, train: Images, device: torch.device) -> Gradient:
    """Return an untrained network's gradient by parameter, unscaled."""
    torch.backends.cudnn.benchmark = technique.benchmark
    model = new_network(technique, plan, shape=train.pixels.shape, device=device)
    trainer = new_trainer(model, technique, device)
    batch = batches(train, plan.batch_size, technique, device)[0]
    trainer.backward(cut(batch, technique.parts))
    return {name: p.grad.double() / trainer.scale for name, p in model.named_parameters()}


def joined(gradient: Gradient) -> torch.Tensor:
    """Return a gradient as one vector."""
    return torch.cat([piece.reshape(-1) for piece in gradient.values()])


def each_near(name: str, found: Gradient, exact: Gradient, bound: float) -> float:
    """Return the distance of the furthest parameter, relative to its exact gradient's length."""
    return max(near(f"{name}, {key}", found[key], exact[key], bound) for key in exact)


def zero_share(gradient: torch.Tensor) -> float:
    """Return the share of elements that are exactly zero."""
    return float((gradient == 0).float().mean().item())


def near(name: str, found: torch.Tensor, exact: torch.Tensor, bound: float) -> float:
    """Return the distance relative to the exact vector's length."""
    error = float(((found - exact).norm() / exact.norm()).item())
    if not error <= bound:
        raise WrongResult(
            f"{name}: the gradient is {error:.3g} of its length away from the whole batch's in 32"
            f" bits, where rounding explains {bound}"
        )
    return error
