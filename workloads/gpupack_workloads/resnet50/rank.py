# SPDX-License-Identifier: Apache-2.0
"""One process of the training: checks its network, times it alone and together."""

import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from gpupack_workloads.devices import memory_errors
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.resnet50.coupling import Flat, replicated
from gpupack_workloads.resnet50.objective import Objective, batches, new_objective, trainer
from gpupack_workloads.resnet50.options import ResNetOptions
from gpupack_workloads.resnet50.plan import Plan, compiled, plan_for
from gpupack_workloads.resnet50.reference import compare, losses, reference_losses
from gpupack_workloads.resnet50.speed import Speeds, Waiting, seconds_alone, seconds_at_once
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
    learning = compare(first, expected, plan.precision.name)
    last, speeds = time_all(network, plan, rank)
    if plan.warm_up + plan.steps >= LEARNING_STEPS and not last <= LEARNT * first[0]:
        raise WrongResult(f"the loss went from {first[0]:.4g} to {last:.4g}: nothing was learnt")
    return Found(learning=learning, first_loss=first[0], last_loss=last, speeds=speeds)


def time_all(network: Network, plan: Plan, rank: Rank) -> tuple[float, Speeds]:
    """Time alone, each for itself and together; return the last loss and the times."""
    waiting = Waiting(dist.new_group(backend="gloo"))
    if rank.ranks == 1:
        learner = trainer(network.loss_of, network.objective, plan, rank.device.torch)
        last, together, peak = time_together(learner, plan, rank, waiting)
        return last, Speeds.of_one(together, peak)
    alone, uncoupled = time_apart(network, plan, rank, waiting)
    forget_peak(rank.device.torch)
    last, together, peak = time_together(coupled(network, plan, rank), plan, rank, waiting)
    check_replicas(network.objective, rank)
    return last, Speeds(
        alone_seconds=alone, uncoupled_seconds=uncoupled, together_seconds=together, peak_mib=peak
    )


def time_apart(network: Network, plan: Plan, rank: Rank, waiting: Waiting) -> tuple[float, float]:
    """Time rank 0 alone, then all ranks each for itself."""
    learner = trainer(network.loss_of, network.objective, plan, rank.device.torch)
    pool = batches(plan, rank.device.torch, rank=rank.index)
    alone = seconds_alone(learner, pool, plan, rank, waiting)
    return alone, seconds_at_once(learner, pool, plan, rank, waiting)


def coupled(network: Network, plan: Plan, rank: Rank) -> Trainer:
    """Return what trains this rank's replica as one with all others."""
    device = rank.device.torch
    if plan.coupling == "ddp":
        replica = replicated(network.loss_of, rank, bucket_mib=plan.bucket_mib)
        return trainer(replica, network.objective, plan, device)
    flat = Flat(network.objective, rank, bucket_mib=plan.bucket_mib)
    return trainer(network.loss_of, network.objective, plan, device, flat.synchronise)


def time_together(
    learner: Trainer, plan: Plan, rank: Rank, waiting: Waiting
) -> tuple[float, float, int]:
    """Train all replicas as one; return the last loss, a step's time and the peak of memory."""
    device = rank.device.torch
    pool = batches(plan, device, rank=rank.index)
    seconds = seconds_at_once(learner, pool, plan, rank, waiting)
    last = float(learner.step([pool[0]]).item())
    return last, seconds, peak_mib(device)


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
