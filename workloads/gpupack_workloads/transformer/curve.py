# SPDX-License-Identifier: Apache-2.0
"""Losses of the first steps, and whether a single process with torch's kernels has the same."""

from dataclasses import dataclass

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.training.curves import distance
from gpupack_workloads.transformer.language import Language
from gpupack_workloads.transformer.parallel import Learner
from gpupack_workloads.transformer.plan import Plan

# Of the first loss: rounding of products, amplified by the path that training takes.
BOUNDS = {"bf16": 0.01, "fp32": 0.001}


@dataclass(frozen=True)
class Agreement:
    """The largest distance between two curves, as a share of the first loss."""

    error: float
    bound: float


def language_of(plan: Plan, device: torch.device) -> Language:
    """Return the language that a plan learns."""
    return Language(vocabulary=plan.shape.vocabulary, seed=plan.seed, device=device)


def curve(learner: Learner, steps: int) -> list[float]:
    """Train from the start; return each step's loss."""
    plan = learner.plan
    language = language_of(plan, learner.place.device)
    losses = [
        learner.step(language.batch(step, rows=plan.batch_size, length=plan.shape.sequence))
        for step in range(steps)
    ]
    return [float(loss.item()) for loss in losses]


def compare(found: list[float], reference: list[float], plan: Plan) -> Agreement:
    """Compare curves.

    Raises:
        WrongResult: they are further apart than rounding explains, or no numbers.
    """
    bound = BOUNDS[plan.dtype]
    error = distance(found, reference)
    if not error <= bound:
        raise WrongResult(
            f"losses with {plan.kernels}' kernels by {plan.parallel} are {found}; those of a single"
            f" process with torch's are {reference}: {error:.3g} apart, rounding explains {bound}"
        )
    return Agreement(error=error, bound=bound)
