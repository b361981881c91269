# SPDX-License-Identifier: Apache-2.0
"""Whether the network that is timed learns what a plain one learns.

The same network, untouched by compiler, reduced precision and memory order, takes the first steps
in 32 bits; losses of both must agree. They are compared after updates, so a wrong gradient shows
as a wrong loss one step later.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.resnet50.objective import batches, new_objective, trainer
from gpupack_workloads.resnet50.plan import Plan
from gpupack_workloads.training.curves import distance
from gpupack_workloads.training.precision import Precision

STEPS = {"cuda": 4, "cpu": 2}
# Small: what rounding makes different should not be amplified by the path that training takes.
LEARNING_RATE = 0.005
# Of the first loss. Rounding of 2^-8 or 2^-11 in 53 layers, amplified by three updates.
BOUNDS = {"bf16": 0.02, "fp16": 0.01, "tf32": 0.01, "fp32": 0.002}


@dataclass(frozen=True)
class Learning:
    """How far apart the losses are, as a share of the first."""

    error: float
    bound: float


def reference_losses(plan: Plan, device: torch.device, *, rank: int) -> list[float]:
    """Return the losses of the first steps in plain 32-bit arithmetic."""
    plain = replace(plan, channels_last=False, folded_stem=False, precision=Precision("fp32"))
    objective = new_objective(plain, device)
    return losses(objective, plain, device, rank=rank)


def losses(
    objective: torch.nn.Module, plan: Plan, device: torch.device, *, rank: int
) -> list[float]:
    """Take the first steps; return their losses."""
    learner = trainer(objective, replace(plan, learning_rate=LEARNING_RATE), device)
    pool = batches(plan, device, rank=rank)
    return [
        float(learner.step([pool[step % len(pool)]]).item()) for step in range(STEPS[device.type])
    ]


def compare(found: Sequence[float], expected: Sequence[float], dtype: str) -> Learning:
    """Compare losses.

    Raises:
        WrongResult: they are further apart than rounding explains, or none.
    """
    learning = Learning(
        error=distance(found, expected),
        bound=BOUNDS[dtype],
    )
    if not learning.error <= learning.bound:
        raise WrongResult(
            f"the losses {found} are up to {learning.error:.3g} away from {list(expected)} of"
            f" plain 32-bit training, as a share of the first; {dtype} explains {learning.bound}"
        )
    return learning
