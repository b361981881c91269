# SPDX-License-Identifier: Apache-2.0
"""Compares the losses of the first steps with those of a single process with torch's kernels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.training.curves import distance
from gpupack_workloads.transformer.language import Language
from gpupack_workloads.transformer.parallel import Learner
from gpupack_workloads.transformer.plan import Plan

# Rounding of products, amplified by the way that training takes. On an H200 in bf16, with 5 seeds
# and 3 sizes, our kernels and torch's were apart by up to 0.00008 of the first loss, 0.0034 of a
# gradient's length and 0.000017 of a parameter's; torch's and 32 bits by no more. Each of 25 faults
# was beyond a bound: a sum of two in place of a mean 67 times as far, key heads in another order 4
# times, no updates of one layer of twelve 5 times, updates of 0.9 of their size 1.7 times.
LOSS_BOUNDS = {"bf16": 0.0003, "fp32": 0.00005}
GRADIENT_BOUNDS = {"bf16": 0.015, "fp32": 0.0002}
WEIGHT_BOUNDS = {"bf16": 0.0001, "fp32": 0.00002}
# Fewer updates do not tell a network that learns from one that does not.
MIN_STEPS = 3


@dataclass(frozen=True)
class Curve:
    """The first steps of a training.

    AdamW takes the same step whatever the gradient's length, so losses alone would not show a sum
    over ranks in place of a mean. Nor would they show within a few steps that one layer of many is
    never updated.

    Attributes:
        losses: losses of each step.
        gradients: lengths of the first step's, by name of the parameter.
        weights: lengths of the parameters after the last step.
    """

    losses: list[float]
    gradients: dict[str, float]
    weights: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class CurveErrors:
    """Distance of two curves: losses as a share of the first, lengths each as a share.

    Attributes:
        steps: how many were compared.
    """

    error: float
    bound: float
    gradient_error: float
    gradient_bound: float
    weight_error: float
    weight_bound: float
    steps: int

    @property
    def near(self) -> bool:
        """Whether rounding explains all of it."""
        return (
            self.error <= self.bound
            and self.gradient_error <= self.gradient_bound
            and self.weight_error <= self.weight_bound
        )

    @property
    def verifies(self) -> bool:
        """Whether enough was compared to call the training verified, and came out near.

        Computed each time, because a checkpoint's record of an earlier comparison may be anything.
        """
        return self.steps >= MIN_STEPS and self.near


def errors_with_bounds(
    *, error: float, gradient_error: float, weight_error: float, steps: int, dtype: str
) -> CurveErrors:
    """Return how far apart two curves of a type are, with the bounds that rounding explains."""
    return CurveErrors(
        error=error,
        bound=LOSS_BOUNDS[dtype],
        gradient_error=gradient_error,
        gradient_bound=GRADIENT_BOUNDS[dtype],
        weight_error=weight_error,
        weight_bound=WEIGHT_BOUNDS[dtype],
        steps=steps,
    )


def is_independent(plan: Plan, ranks: int) -> bool:
    """Return whether a single process with torch's kernels computes otherwise than the training.

    If not, the comparison is of torch with itself, and its errors of 0 verify nothing.
    """
    return plan.kernels != "torch" or plan.compiled or ranks > 1


def language_of(plan: Plan, device: torch.device) -> Language:
    """Return the language that a plan learns."""
    return Language(vocabulary=plan.shape.vocabulary, seed=plan.seed, device=device)


def curve(learner: Learner, steps: int) -> Curve:
    """Train from the start."""
    plan = learner.plan
    language = language_of(plan, learner.world_rank.device)
    losses: list[torch.Tensor] = []
    gradients: dict[str, float] = {}
    for step in range(steps):
        batch = language.batch(step, rows=plan.batch_size, length=plan.shape.sequence)
        losses.append(learner.step(batch))
        gradients = gradients or learner.gradient_lengths()
    return Curve([float(loss.item()) for loss in losses], gradients, learner.weight_lengths())


def compare(found: Curve, reference: Curve, plan: Plan) -> CurveErrors:
    """Compare curves.

    Raises:
        WrongResult: they are further apart than rounding explains, or no numbers.
    """
    gradient, gradient_error = furthest(found.gradients, reference.gradients)
    weight, weight_error = furthest(found.weights, reference.weights)
    curve_errors = errors_with_bounds(
        error=distance(found.losses, reference.losses),
        gradient_error=gradient_error,
        weight_error=weight_error,
        steps=len(found.losses),
        dtype=plan.dtype,
    )
    if not curve_errors.near:
        raise WrongResult(
            f"losses by {plan.parallel}, --kernels {plan.kernels}, are {found.losses}, those of a"
            f" single process with torch's {reference.losses}; lengths of gradients and weights"
            f" differ most in {gradient} and {weight}: {curve_errors}"
        )
    return curve_errors


def require_numbers(losses: Sequence[float]) -> None:
    """Refuse losses of which no network can learn.

    Raises:
        WrongResult: one of them is no finite number.
    """
    wrong = [loss for loss in losses if not math.isfinite(loss)]
    if wrong:
        raise WrongResult(f"{len(wrong)} of {len(losses)} losses are no numbers: first {wrong[0]}")


def require_first(losses: Sequence[float], expected: Sequence[float], plan: Plan) -> None:
    """Refuse a training whose first losses are not those of a single process with torch's kernels.

    Raises:
        WrongResult: they are further apart than rounding explains.
    """
    both = min(len(losses), len(expected))
    found, reference = list(losses[:both]), list(expected[:both])
    if both and not distance(found, reference) <= LOSS_BOUNDS[plan.dtype]:
        raise WrongResult(
            f"the training's first losses are {found}, those of a single process with torch's"
            f" kernels {reference}"
        )


def furthest(found: dict[str, float], reference: dict[str, float]) -> tuple[str, float]:
    """Return where lengths differ most, and by what share; what is not found has none."""
    apart = {name: distance([found.get(name, 0.0)], [reference[name]]) for name in reference}
    name = max(apart, key=lambda name: apart[name])
    return name, apart[name]
