# SPDX-License-Identifier: Apache-2.0
"""One process of the training: checks its network, times it alone and together."""

import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from gpupack_workloads.devices import memory_errors
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.distributed.together import all_or_none
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.resnet50.coupling import Flat, replicated
from gpupack_workloads.resnet50.objective import Objective, batches, new_objective, trainer
from gpupack_workloads.resnet50.options import ResNetOptions
from gpupack_workloads.resnet50.plan import Plan, compiled, plan_for
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


@dataclass(frozen=True)
class Network:
    """A network as it is timed, and the module that holds its parameters."""

    loss_of: nn.Module
    objective: Objective


def measure(options: ResNetOptions, backend: str) -> Result:
    """Join the group, train, return the result."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        plan = plan_for(options, rank.device)
        with memory_errors(f"training on {plan.batch_size} images of {plan.size} x {plan.size}"):
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
    network = Network(compiled(objective, plan.compile_mode), objective)
    first = losses(network.loss_of, objective, plan, device, rank=rank.index)
    logger.info("losses %s, plain fp32 %s", first, expected)
    with all_or_none():
        learning = compare(first, expected, plan.precision.name)
    last, speeds = time_all(network, plan, rank)
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


def time_all(network: Network, plan: Plan, rank: Rank) -> tuple[float, Speeds]:
    """Time alone, each for itself and together; return the last loss and the times."""
    waiting = Waiting(dist.new_group(backend="gloo"))
    learner = trainer(network.loss_of, network.objective, plan, rank.device.torch)
    pool = batches(plan, rank.device.torch, rank=rank.index)
    alone = seconds_of_first(1, learner, pool, plan, rank, waiting)
    uncoupled = alone
    if rank.ranks > 1:
        uncoupled = seconds_of_first(rank.ranks, learner, pool, plan, rank, waiting)
    together = {1: alone}
    for count in counts(rank.ranks):
        learner = coupled(network, plan, rank, count)
        together[count] = seconds_of_first(count, learner, pool, plan, rank, waiting)
    last = float(learner.step([pool[0]]).item())
    check_replicas(network.objective, rank)
    peak = peak_mib(rank.device.torch)
    return last, Speeds(uncoupled_seconds=uncoupled, together_seconds=together, peak_mib=peak)


def coupled(network: Network, plan: Plan, rank: Rank, count: int) -> Trainer:
    """Return what trains the replicas of the first ranks as one."""
    device = rank.device.torch
    group = dist.new_group(list(range(count))) if count < rank.ranks else None
    if rank.index >= count:
        return trainer(network.loss_of, network.objective, plan, device)
    if plan.coupling == "ddp":
        replica = replicated(network.loss_of, rank, bucket_mib=plan.bucket_mib, group=group)
        return trainer(replica, network.objective, plan, device)
    flat = Flat(network.objective, rank, bucket_mib=plan.bucket_mib, group=group)
    return trainer(network.loss_of, network.objective, plan, device, flat.synchronise)


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
