# SPDX-License-Identifier: Apache-2.0
"""Losses of the first steps, and whether a single process with torch's kernels has the same."""

from dataclasses import dataclass

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.training.curves import distance
from gpupack_workloads.transformer.language import Language
from gpupack_workloads.transformer.parallel import Learner
from gpupack_workloads.transformer.plan import Plan

# Of the first loss, and of the gradient's lengths: rounding of products, amplified by the path that
# training takes. Measured in bf16 on an H200: losses up to 0.00004 apart.
BOUNDS = {"bf16": 0.0005, "fp32": 0.00005}
NORM_BOUNDS = {"bf16": 0.05, "fp32": 0.001}
# Fewer updates do not tell a network that learns from one that does not.
LEAST_STEPS = 3


@dataclass(frozen=True)
class Curve:
    """Losses of the first steps, and lengths of the first step's gradient by kind of parameter.

    AdamW takes the same step whatever the gradient's length, so losses alone would not show a sum
    over ranks in place of a mean. The length of the whole gradient would not show what goes wrong
    with queries and keys, which are a small part of it.
    """

    losses: list[float]
    gradients: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far apart two curves are: losses as a share of the first, lengths as a share of each.

    Attributes:
        steps: how many were compared.
    """

    error: float
    bound: float
    gradient_error: float
    gradient_bound: float
    steps: int

    @property
    def verifies(self) -> bool:
        """Whether enough was compared to call the training verified."""
        return self.steps >= LEAST_STEPS


def language_of(plan: Plan, device: torch.device) -> Language:
    """Return the language that a plan learns."""
    return Language(vocabulary=plan.shape.vocabulary, seed=plan.seed, device=device)


def curve(learner: Learner, steps: int) -> Curve:
    """Train from the start; return each step's loss."""
    plan = learner.plan
    language = language_of(plan, learner.place.device)
    losses: list[torch.Tensor] = []
    gradients: dict[str, float] = {}
    for step in range(steps):
        batch = language.batch(step, rows=plan.batch_size, length=plan.shape.sequence)
        losses.append(learner.step(batch))
        gradients = gradients or learner.gradient_norms()
    return Curve([float(loss.item()) for loss in losses], gradients)


def compare(found: Curve, reference: Curve, plan: Plan) -> Agreement:
    """Compare curves.

    Raises:
        WrongResult: they are further apart than rounding explains, or no numbers.
    """
    apart = {kind: apart_in(kind, found, reference) for kind in reference.gradients}
    furthest = max(apart, key=lambda kind: apart[kind])
    agreement = Agreement(
        error=distance(found.losses, reference.losses),
        bound=BOUNDS[plan.dtype],
        gradient_error=apart[furthest],
        gradient_bound=NORM_BOUNDS[plan.dtype],
        steps=len(found.losses),
    )
    near = agreement.error <= agreement.bound
    if not (near and agreement.gradient_error <= agreement.gradient_bound):
        raise WrongResult(
            f"losses and lengths of the first gradient with {plan.kernels}' kernels by"
            f" {plan.parallel} are {found}; those of a single process with torch's are {reference}:"
            f" {agreement}, most in {furthest}"
        )
    return agreement


def apart_in(kind: str, found: Curve, reference: Curve) -> float:
    """Return how far apart two gradients' lengths are, of one kind of parameters."""
    return distance([found.gradients[kind]], [reference.gradients[kind]])
