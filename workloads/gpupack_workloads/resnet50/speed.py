# SPDX-License-Identifier: Apache-2.0
"""Times training three ways in one run: one GPU alone, all GPUs each for itself, all together.

Between the first two lies what GPUs take from each other (power, cooling, the host's cores),
between the last two what communication costs. While one trains alone the others wait on their CPUs,
since a collective that waits keeps a GPU busy.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.resnet50.plan import Plan
from gpupack_workloads.timing import seconds_per_call
from gpupack_workloads.training.steps import Batch, Trainer


@dataclass(frozen=True)
class Waiting:
    """Where ranks wait for each other without their GPUs."""

    group: dist.ProcessGroup

    def barrier(self) -> None:
        """Wait until all are here."""
        dist.barrier(group=self.group)

    def slowest(self, seconds: float) -> float:
        """Return the largest of all ranks' figures."""
        figure = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(figure, op=dist.ReduceOp.MAX, group=self.group)
        return float(figure.item())


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Times of one step, of the slowest rank, and the largest memory that one took.

    Attributes:
        alone_seconds: on one GPU while the others wait.
        uncoupled_seconds: while all train, each for itself.
        together_seconds: while all train one network.
        peak_mib: of tensors while all train one network.
    """

    alone_seconds: float
    uncoupled_seconds: float
    together_seconds: float
    peak_mib: int

    @classmethod
    def of_one(cls, seconds: float, peak_mib: int) -> "Speeds":
        """Return the times of a rank that has no others."""
        return cls(
            alone_seconds=seconds,
            uncoupled_seconds=seconds,
            together_seconds=seconds,
            peak_mib=peak_mib,
        )


def seconds_alone(
    learner: Trainer, pool: Sequence[Batch], plan: Plan, rank: Rank, waiting: Waiting
) -> float:
    """Return a step's time on rank 0 while the others wait."""
    waiting.barrier()
    mine = step_seconds(learner, pool, plan, rank) if rank.index == 0 else 0.0
    return waiting.slowest(mine)


def seconds_at_once(
    learner: Trainer, pool: Sequence[Batch], plan: Plan, rank: Rank, waiting: Waiting
) -> float:
    """Return the slowest rank's time of a step while all train."""
    waiting.barrier()
    return waiting.slowest(step_seconds(learner, pool, plan, rank))


def step_seconds(learner: Trainer, pool: Sequence[Batch], plan: Plan, rank: Rank) -> float:
    """Return the mean time of a step."""
    turn = itertools.cycle(pool)
    return seconds_per_call(
        lambda: learner.step([next(turn)]),
        device=rank.device.torch,
        repeats=plan.steps,
        warm_up=plan.warm_up,
    )
