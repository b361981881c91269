# SPDX-License-Identifier: Apache-2.0
"""One process of the training: compares first steps with a single process, trains, times."""

import logging

import torch.distributed as dist

from gpupack_workloads.devices import memory_errors
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.results import Result
from gpupack_workloads.training.memory import forget_peak
from gpupack_workloads.transformer.curve import Agreement, compare, curve
from gpupack_workloads.transformer.operations import operations
from gpupack_workloads.transformer.options import TransformerOptions
from gpupack_workloads.transformer.parallel import Place, new_learner, single_learner
from gpupack_workloads.transformer.plan import Plan, plan_for
from gpupack_workloads.transformer.saving import find
from gpupack_workloads.transformer.speed import measure_speeds
from gpupack_workloads.transformer.summary import Found, summarise
from gpupack_workloads.transformer.training import Keeping, train

logger = logging.getLogger(__name__)


def measure(options: TransformerOptions, backend: str) -> Result:
    """Join the group, train, return the result."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        plan = plan_for(options, ranks=rank.ranks, simulated=rank.device.simulated)
        found = find(options.checkpoint, plan) if options.checkpoint else None
        keeping = Keeping(options.checkpoint, options.checkpoint_every, options.attempt, found)
        with memory_errors(f"training on {plan.batch_size} rows of {plan.shape.sequence} tokens"):
            done = work(plan, keeping, rank)
        return summarise(done, plan, rank)


def work(plan: Plan, keeping: Keeping, rank: Rank) -> Found:
    """Check, train, time."""
    place = Place(index=rank.index, ranks=rank.ranks, device=rank.device.torch)
    chosen = operations(plan.kernels, compiled=plan.compiled)
    agreement = check(plan, place) if plan.check_steps else None
    learner = new_learner(plan, chosen, place)
    trained = train(learner, keeping)
    speeds = measure_speeds(learner)
    return Found(agreement=agreement, trained=trained, speeds=speeds)


def check(plan: Plan, place: Place) -> Agreement:
    """Compare the first steps with those of a single process that has torch's kernels.

    Every rank computes the reference for itself: it would wait otherwise.
    """
    reference = curve(
        single_learner(plan, operations("torch", compiled=False), place), plan.check_steps
    )
    forget_peak(place.device)
    dist.barrier()
    found = curve(
        new_learner(plan, operations(plan.kernels, compiled=plan.compiled), place), plan.check_steps
    )
    forget_peak(place.device)
    if place.index == 0:
        logger.info("losses %s, of a single process with torch's kernels %s", found, reference)
    return compare(found, reference, plan)
