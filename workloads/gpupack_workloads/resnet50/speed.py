# SPDX-License-Identifier: Apache-2.0
"""Times training in one run: one GPU alone, all each for itself, two together, four, all.

Between alone and each for itself lies what GPUs take from each other (power, cooling, the host's
cores), between that and all together what communication costs. Who does not train waits on its
CPU, since a collective that waits keeps a GPU busy.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from gpupack_workloads.distributed.rank import TIMEOUT, Rank
from gpupack_workloads.resnet50.plan import Plan
from gpupack_workloads.timing import seconds_per_call
from gpupack_workloads.training.steps import Batch, Trainer

# An H200 takes 0.003.
GPU_SECONDS_PER_MEGAPIXEL = 0.1
CPU_SECONDS_PER_MEGAPIXEL = 20.0


@dataclass(frozen=True)
class Waiting:
    """A group in which ranks wait for each other without their GPUs."""

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
        uncoupled_seconds: while all train, each for itself.
        together_seconds: while so many train one network and the others wait.
        peak_mib: MiB of tensors on this rank.
    """

    uncoupled_seconds: float
    together_seconds: dict[int, float]
    peak_mib: int


def waiting_timeout(plan: Plan, rank: Rank) -> timedelta:
    """Return how long ranks wait for one that trains alone, however slow its device may be."""
    megapixels = plan.batch_size * plan.size**2 / 1e6
    slow = CPU_SECONDS_PER_MEGAPIXEL if rank.device.simulated else GPU_SECONDS_PER_MEGAPIXEL
    return TIMEOUT + (plan.warm_up + plan.steps) * timedelta(seconds=slow * megapixels)


def counts(ranks: int) -> list[int]:
    """Return how many ranks train together, one run after the other: 2, 4, 8 ... and all."""
    doubling = [1 << power for power in range(1, ranks.bit_length())]
    return [count for count in doubling if count < ranks] + [ranks] * (ranks > 1)


def seconds_of_first(
    count: int,
    learner: Trainer,
    pool: Sequence[Batch],
    plan: Plan,
    rank: Rank,
    waiting: Waiting,
) -> float:
    """Return the slowest one's time of a step while the first ranks train and the others wait."""
    waiting.barrier()
    mine = step_seconds(learner, pool, plan, rank) if rank.index < count else 0.0
    return waiting.slowest(mine)


def step_seconds(learner: Trainer, pool: Sequence[Batch], plan: Plan, rank: Rank) -> float:
    """Return the mean time of a step."""
    turn = itertools.cycle(pool)
    return seconds_per_call(
        lambda: learner.step([next(turn)]),
        device=rank.device.torch,
        repeats=plan.steps,
        warm_up=plan.warm_up,
    )
