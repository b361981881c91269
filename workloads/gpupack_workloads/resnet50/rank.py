# SPDX-License-Identifier: Apache-2.0
"""One process of the training: checks its network, times it alone and together."""

import contextlib
import logging
from collections.abc import Iterator
from typing import cast

import torch
import torch.distributed as dist
from torch import nn

from gpupack_workloads.devices import memory_errors
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.distributed.room import require_room
from gpupack_workloads.distributed.together import all_or_none
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.resnet50.coupling import Flat, replicated
from gpupack_workloads.resnet50.need import least_bytes
from gpupack_workloads.resnet50.objective import Objective, batches, new_objective, trainer
from gpupack_workloads.resnet50.options import ResNetOptions
from gpupack_workloads.resnet50.plan import Plan, plan_for
from gpupack_workloads.resnet50.reference import compare, losses, reference_losses
from gpupack_workloads.resnet50.speed import Speeds, Waiting, counts, seconds_of_first
from gpupack_workloads.resnet50.summary import Found, summarise
from gpupack_workloads.results import Result
from gpupack_workloads.training.memory import forget_peak, peak_mib
from gpupack_workloads.training.steps import Trainer

logger = logging.getLogger(__name__)

# Colours under noise are learnt within a dozen steps; what learns at all is far below this then.
LEARNING_STEPS = 30
LEARNT = 0.5


def measure(options: ResNetOptions, backend: str) -> Result:
    """Join the group, train, return the result."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        plan = plan_for(options, rank.device)
        doing = f"training on {plan.batch_size} images of {plan.size} x {plan.size}"
        require_room(least_bytes(plan), rank.device, doing=doing, smaller="--batch-size or --size")
        with memory_errors(doing):
            found = train(plan, rank)
        return summarise(found, plan, rank)


def train(plan: Plan, rank: Rank) -> Found:
    """Check and time the network alone, then together with the other ranks."""
    device = rank.device.torch
    expected = reference_losses(plan, device, rank=rank.index)
    forget_peak(device)
    # Only now: to search algorithms for the reference takes longer than to run it.
    torch.backends.cudnn.benchmark = True
    objective = new_objective(plan, device)
    objective.compile_segments(plan.compile_mode)
    first = losses(objective, plan, device, rank=rank.index)
    logger.info("losses %s, plain fp32 %s", first, expected)
    if plan.coupling == "flat":
        with all_or_none():
            check_exchange(objective.network.segments, plan, rank)
    with all_or_none():
        learning = compare(first, expected, plan.precision.name)
    last, speeds = time_all(objective, plan, rank)
    with all_or_none():
        check_learning(first[0], last, plan)
    return Found(learning=learning, first_loss=first[0], last_loss=last, speeds=speeds)


def check_learning(first: float, last: float, plan: Plan) -> None:
    """Refuse a training long enough to learn that has not.

    Raises:
        WrongResult: the loss has not halved.
    """
    if plan.warm_up + plan.steps >= LEARNING_STEPS and not last <= LEARNT * first:
        raise WrongResult(f"the loss went from {first:.4g} to {last:.4g}: nothing was learnt")


def time_all(objective: Objective, plan: Plan, rank: Rank) -> tuple[float, Speeds]:
    """Time alone, each for itself and together; return the last loss and the times."""
    waiting = Waiting(dist.new_group(backend="gloo"))
    by_itself = trainer(objective, plan, rank.device.torch)
    pool = batches(plan, rank.device.torch, rank=rank.index)
    alone = seconds_of_first(1, by_itself, pool, plan, rank, waiting)
    uncoupled = alone
    if rank.ranks > 1:
        uncoupled = seconds_of_first(rank.ranks, by_itself, pool, plan, rank, waiting)
    together = {1: alone}
    for count in counts(rank.ranks):
        with coupled(objective, plan, rank, count) as learner:
            together[count] = seconds_of_first(count, learner, pool, plan, rank, waiting)
    check_replicas(objective, rank)
    # What all updates led to; the one that comes with it is no replica's any more.
    last = float(by_itself.step([pool[0]]).item())
    peak = peak_mib(rank.device.torch)
    return last, Speeds(uncoupled_seconds=uncoupled, together_seconds=together, peak_mib=peak)


@contextlib.contextmanager
def coupled(objective: Objective, plan: Plan, rank: Rank, count: int) -> Iterator[Trainer]:
    """Yield what trains the replicas of the first ranks as one; each for itself afterwards."""
    device = rank.device.torch
    group = dist.new_group(list(range(count))) if count < rank.ranks else None
    if rank.index >= count:
        yield trainer(objective, plan, device)
    elif plan.coupling == "ddp":
        replica = replicated(objective, rank, bucket_mib=plan.bucket_mib, group=group)
        yield trainer(objective, plan, device, loss_of=replica)
    else:
        segments = objective.network.segments
        flat = Flat(segments, rank, bucket_mib=plan.bucket_mib, group=group)
        with contextlib.closing(flat):
            yield trainer(objective, plan, device, synchronise=flat.synchronise)


def check_exchange(segments: nn.Sequential, plan: Plan, rank: Rank) -> None:
    """Exchange gradients of which every rank knows the mean.

    Raises:
        WrongResult: another one came.
    """
    mean_of_ranks = (rank.ranks - 1) / 2
    segments.zero_grad()
    with contextlib.closing(Flat(segments, rank, bucket_mib=plan.bucket_mib)) as flat:
        parameters = list(segments.parameters())
        torch.stack(
            [parameter.sum() * (rank.index + place) for place, parameter in enumerate(parameters)]
        ).sum().backward()
        flat.synchronise()
    for place, parameter in enumerate(parameters):
        expected = torch.full_like(parameter, mean_of_ranks + place)
        if not torch.allclose(cast("torch.Tensor", parameter.grad), expected, rtol=1e-6):
            raise WrongResult(
                f"rank {rank.index}: the mean gradient of parameter {place} over {rank.ranks} ranks"
                f" is {mean_of_ranks + place}, and the exchange made something else of it"
            )
    segments.zero_grad()


def check_replicas(objective: Objective, rank: Rank) -> None:
    """Compare every rank's parameters, bit by bit as a sum of their patterns.

    Raises:
        WrongResult: the replicas have drifted apart.
    """
    patterns = [p.detach().reshape(-1).view(torch.int32).sum() for p in objective.parameters()]
    mine = torch.stack(patterns)
    least, most = mine.clone(), mine.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    if not torch.equal(least, most):
        raise WrongResult(f"rank {rank.index}: the replicas' parameters differ after training")
