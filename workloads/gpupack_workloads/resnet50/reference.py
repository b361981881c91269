# SPDX-License-Identifier: Apache-2.0
"""Checks that the timed network learns as a plain one does.

The same network, untouched by compiler, reduced precision and memory order, takes the same first
steps in 32 bits. Compared are the first gradient of every parameter, and the losses.

A block starts as the identity: its last normalisation multiplies by zero, so that nothing within it
reaches the loss for a while. For this comparison it multiplies by `AWAKE`. By 1 it could not be
compared: rounding to bf16 then changes gradients by more than their length.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.resnet50.model import set_branches
from gpupack_workloads.resnet50.objective import Objective, batches, new_objective, trainer
from gpupack_workloads.resnet50.plan import Plan
from gpupack_workloads.training.curves import distance
from gpupack_workloads.training.precision import Precision
from gpupack_workloads.training.steps import Batch

STEPS = {"cuda": 4, "cpu": 2}
# Small: what rounding makes different should not be amplified by the path that training takes.
LEARNING_RATE = 0.005
AWAKE = 0.05
# fp16 gradients of single values are too small for the format, unless the loss is larger.
SCALE = 1024.0


@dataclass(frozen=True)
class Bounds:
    """Bounds of a format's distance from plain 32-bit arithmetic.

    Attributes:
        loss: as a share of the first loss.
        gradient: the length of the difference of one parameter's gradients, as a share.
        length: the difference of the whole gradients' lengths, as a share.
    """

    loss: float
    gradient: float
    length: float


# One H200, 256 images: bf16 0.0002, 0.06, 0.001; fp16 and tf32 a third of that; fp32 1/60. Small
# images and batches some five times as much. One block whose 3 x 3 convolution gives zeros, another
# sign, other channels or another image: gradient 0.99 and more.
BOUNDS = {
    "bf16": Bounds(loss=0.005, gradient=0.5, length=0.02),
    "fp16": Bounds(loss=0.005, gradient=0.25, length=0.01),
    "tf32": Bounds(loss=0.005, gradient=0.25, length=0.01),
    "fp32": Bounds(loss=0.002, gradient=0.05, length=0.002),
}


@dataclass(frozen=True)
class Start:
    """The first steps of a network: its losses, and each parameter's first gradient."""

    losses: list[float]
    gradients: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Learning:
    """Distance of two networks' first steps, and the bound of the format."""

    loss: float
    gradient: float
    length: float
    bounds: Bounds


def reference_start(plan: Plan, device: torch.device, *, rank: int) -> Start:
    """Take the first steps in plain 32-bit arithmetic."""
    plain = replace(plan, channels_last=False, folded_stem=False, precision=Precision("fp32"))
    return start_of(new_objective(plain, device), plain, device, rank=rank)


def start_of(objective: Objective, plan: Plan, device: torch.device, *, rank: int) -> Start:
    """Take the first steps with branches enabled; the network continues with branches disabled."""
    pool = batches(plan, device, rank=rank)
    set_branches(objective, AWAKE)
    gradients = first_gradients(objective, pool[0], plan, device)
    learner = trainer(objective, plan, device, learning_rate=LEARNING_RATE)
    losses = [
        float(learner.step([pool[step % len(pool)]]).item()) for step in range(STEPS[device.type])
    ]
    set_branches(objective, 0.0)
    return Start(losses, gradients)


def first_gradients(
    objective: nn.Module, batch: Batch, plan: Plan, device: torch.device
) -> dict[str, torch.Tensor]:
    """Return each parameter's gradient of one batch."""
    scale = SCALE if plan.precision.needs_scaling else 1.0
    with plan.precision.computing(device):
        loss = objective(*batch)
    (loss * scale).backward()
    gradients = {
        name: parameter.grad.div(scale).contiguous()
        for name, parameter in objective.named_parameters()
        if parameter.grad is not None
    }
    objective.zero_grad()
    return gradients


def compare(found: Start, expected: Start, dtype: str) -> Learning:
    """Compare the first steps.

    Raises:
        WrongResult: they are further apart than rounding explains, or not numbers.
    """
    bounds = BOUNDS[dtype]
    loss = distance(found.losses, expected.losses)
    if not loss <= bounds.loss:
        raise WrongResult(
            f"the losses {found.losses} are up to {loss:.3g} away from {expected.losses} of"
            f" plain 32-bit training, as a share of the first; {dtype} explains {bounds.loss}"
        )
    gradient = farthest(found.gradients, expected.gradients, bounds.gradient, dtype)
    own, other = whole_length(expected.gradients), whole_length(found.gradients)
    length = abs(other - own) / own
    if not length <= bounds.length:
        raise WrongResult(
            f"the first gradient is {other:.4g} long, that of plain 32-bit training {own:.4g};"
            f" {dtype} explains a share of {bounds.length}"
        )
    return Learning(loss=loss, gradient=gradient, length=length, bounds=bounds)


def farthest(
    found: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    bound: float,
    dtype: str,
) -> float:
    """Return how far the worst parameter's gradient is away, as a share of its length.

    Raises:
        WrongResult: farther than the bound, not a number, or there is none.
    """
    worst = 0.0
    for name, wanted in expected.items():
        difference = found.get(name, torch.zeros_like(wanted)) - wanted
        apart = length_of(difference) / length_of(wanted)
        if not apart <= bound:
            raise WrongResult(
                f"the first gradient of {name} is {apart:.3g} of its length away from that of plain"
                f" 32-bit training; {dtype} explains {bound}"
            )
        worst = max(worst, apart)
    return worst


def whole_length(gradients: Mapping[str, torch.Tensor]) -> float:
    """Return the length of all gradients together."""
    return math.hypot(*(length_of(gradient) for gradient in gradients.values()))


def length_of(gradient: torch.Tensor) -> float:
    """Return a gradient's length."""
    return float(torch.linalg.vector_norm(gradient.double()).item())
