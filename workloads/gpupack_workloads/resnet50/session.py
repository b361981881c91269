# SPDX-License-Identifier: Apache-2.0
"""One process of the training: checks its network, times it alone and together."""

import logging
from dataclasses import replace

import torch
import torch.distributed as dist

from gpupack_workloads.devices import memory_errors
from gpupack_workloads.distributed.memory_check import require_memory_on_all_ranks
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.resnet50.data_parallel import coupled
from gpupack_workloads.resnet50.memory_estimate import least_bytes
from gpupack_workloads.resnet50.objective import Objective, batches, new_objective, trainer
from gpupack_workloads.resnet50.options import FLAT, NO_COMPILER, ResNetOptions
from gpupack_workloads.resnet50.plan import Plan, plan_for
from gpupack_workloads.resnet50.reference import compare, reference_start, start_of
from gpupack_workloads.resnet50.replica_checks import check_means, check_replicas, wrong_means
from gpupack_workloads.resnet50.speed import (
    Speeds,
    Waiting,
    counts,
    seconds_of_first,
    waiting_timeout,
)
from gpupack_workloads.resnet50.summary import TrainingFigures, summarise
from gpupack_workloads.results import Result
from gpupack_workloads.training.memory import forget_peak, peak_mib

logger = logging.getLogger(__name__)

# Colours under noise are learnt within a dozen steps; what learns at all is far below this then.
LEARNING_STEPS = 30
LEARNT = 0.5


def measure(options: ResNetOptions, backend: str) -> Result:
    """Join the group, train, return the result."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        plan = agreed(plan_for(options, rank.device), rank)
        doing = f"training on {plan.batch_size} images of {plan.size} x {plan.size}"
        require_memory_on_all_ranks(
            least_bytes(plan), rank.device, doing=doing, smaller="--batch-size or --size"
        )
        with memory_errors(doing):
            found = train(plan, rank)
        return summarise(found, plan, rank)


def agreed(plan: Plan, rank: Rank) -> Plan:
    """Return the plan with the smallest batch of all ranks: their GPUs may differ."""
    batch = torch.tensor(plan.batch_size, device=rank.device.torch)
    dist.all_reduce(batch, op=dist.ReduceOp.MIN)
    return replace(plan, batch_size=int(batch.item()))


def train(plan: Plan, rank: Rank) -> TrainingFigures:
    """Check and time the network alone, then together with the other ranks."""
    device = rank.device.torch
    expected = reference_start(plan, device, rank=rank.index)
    forget_peak(device)
    # Only now: to search algorithms for the reference takes longer than to run it.
    torch.backends.cudnn.benchmark = True
    objective = new_objective(plan, device)
    if plan.compile_mode != NO_COMPILER:
        objective.compile(mode=plan.compile_mode)
    first = start_of(objective, plan, device, rank=rank.index)
    logger.info("losses %s, plain fp32 %s", first.losses, expected.losses)
    if plan.coupling == FLAT:
        wrong = wrong_means(objective, rank, bucket_mib=plan.bucket_mib)
        with all_or_none():
            check_means(wrong, rank)
    with all_or_none():
        learning = compare(first, expected, plan.precision.name)
    last, speeds = time_all(objective, plan, rank)
    with all_or_none():
        check_learning(first.losses[0], last, plan)
    return TrainingFigures(
        learning=learning, first_loss=first.losses[0], last_loss=last, speeds=speeds
    )


def check_learning(first: float, last: float, plan: Plan) -> None:
    """Refuse a training long enough to learn that has not.

    Raises:
        WrongResult: the loss has not halved.
    """
    if plan.warm_up + plan.steps >= LEARNING_STEPS and not last <= LEARNT * first:
        raise WrongResult(f"the loss went from {first:.4g} to {last:.4g}: nothing was learnt")


def time_all(objective: Objective, plan: Plan, rank: Rank) -> tuple[float, Speeds]:
    """Time alone, each for itself and together; return the last loss and the times."""
    waiting = Waiting(dist.new_group(backend="gloo", timeout=waiting_timeout(plan, rank)))
    by_itself = trainer(objective, plan, rank.device.torch)
    pool = batches(plan, rank.device.torch, rank=rank.index)
    alone = seconds_of_first(1, by_itself, pool, plan, rank, waiting)
    uncoupled = alone
    if rank.ranks > 1:
        uncoupled = seconds_of_first(rank.ranks, by_itself, pool, plan, rank, waiting)
    together = {1: alone}
    for count in counts(rank.ranks):
        learner = coupled(objective, plan, rank, count)
        together[count] = seconds_of_first(count, learner, pool, plan, rank, waiting)
    check_replicas(objective, rank)
    # What all updates led to; the one that comes with it is no replica's any more.
    last = float(by_itself.step([pool[0]]).item())
    peak = peak_mib(rank.device.torch)
    return last, Speeds(uncoupled_seconds=uncoupled, together_seconds=together, peak_mib=peak)
