# SPDX-License-Identifier: Apache-2.0
"""Whether techniques leave the gradient what it is.

Accumulation must give the gradient of the whole batch, up to the order of 32-bit sums. Half
precision with a scaled loss must come close to it. Without scaling many of its elements are zero:
they are counted both ways, to show what scaling is for.
"""

from dataclasses import dataclass, replace

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.train_cnn.images import Images
from gpupack_workloads.train_cnn.learning import batches, cut, new_network, new_trainer
from gpupack_workloads.train_cnn.plan import Plan, Technique
from gpupack_workloads.training.precision import Precision

# Relative to the gradient's length. Sums of 32-bit numbers in another order; and 2^-11 in 7 layers,
# where rounding also flips choices of max-pooling, each of which moves a whole element.
ACCUMULATION_BOUND = 1e-3
AMP_BOUND = 0.1


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Distances from the whole batch's 32-bit gradient, relative to its length."""

    accumulation_error: float
    amp_error: float
    amp_zero_share: float
    unscaled_zero_share: float


def compare(plan: Plan, train: Images, device: torch.device) -> Gradients:
    """Compare one batch's gradient by three ways.

    Raises:
        WrongResult: one of them is another gradient.
    """
    plain = Technique(name="fp32")
    whole = gradient(plain, plan, train, device)
    parts = gradient(replace(plain, parts=plan.accumulate), plan, train, device)
    half = gradient(replace(plain, precision=Precision("fp16")), plan, train, device)
    unscaled = Technique(name="unscaled", precision=Precision("fp16", scaled=False))
    bare = gradient(unscaled, plan, train, device)
    return Gradients(
        accumulation_error=near("accumulation", parts, whole, ACCUMULATION_BOUND),
        amp_error=near("AMP", half, whole, AMP_BOUND),
        amp_zero_share=zero_share(half),
        unscaled_zero_share=zero_share(bare),
    )


def gradient(technique: Technique, plan: Plan, train: Images, device: torch.device) -> torch.Tensor:
    """Return an untrained network's gradient as one vector, unscaled."""
    model = new_network(technique, plan, shape=train.pixels.shape, device=device)
    trainer = new_trainer(model, technique, device)
    batch = batches(train, plan.batch_size, technique, device)[0]
    trainer.backward(cut(batch, technique.parts))
    pieces = [parameter.grad.reshape(-1) for parameter in model.parameters()]
    return torch.cat(pieces).double() / trainer.scale


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
