# SPDX-License-Identifier: Apache-2.0
"""One process of the training: compares first steps with a single process, trains, times."""

import logging
from dataclasses import replace
from pathlib import Path

import torch.distributed as dist

from gpupack_workloads.devices import memory_errors
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.distributed.room import require_room
from gpupack_workloads.distributed.together import all_or_none
from gpupack_workloads.results import Result
from gpupack_workloads.training.memory import forget_peak
from gpupack_workloads.transformer.curve import Agreement, compare, curve
from gpupack_workloads.transformer.farewell import leaving
from gpupack_workloads.transformer.need import checking_bytes, training_bytes
from gpupack_workloads.transformer.operations import operations
from gpupack_workloads.transformer.options import TransformerOptions
from gpupack_workloads.transformer.parallel import Place, new_learner, single_learner
from gpupack_workloads.transformer.plan import Plan, plan_for
from gpupack_workloads.transformer.saving import agreed_claim, find
from gpupack_workloads.transformer.speed import measure_speeds
from gpupack_workloads.transformer.summary import Found, summarise
from gpupack_workloads.transformer.training import Keeping, train

logger = logging.getLogger(__name__)

# The comparison holds the whole network on every rank, which training may not have to.
ALONE = "--check-steps 0 would not compare"
SMALLER = "--batch-size, --sequence, --layers or --width"


def measure(options: TransformerOptions, backend: str) -> Result:
    """Join the group, train, return the result."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        plan = plan_for(options, ranks=rank.ranks, simulated=rank.device.simulated)
        keeping = keeping_of(options, plan, rank.ranks)
        doing = f"training on {plan.batch_size} rows of {plan.shape.sequence} tokens"
        check_memory(plan, rank, doing=doing, comparing=compares(plan, keeping))
        with memory_errors(f"{doing} ({ALONE})"):
            done = work(plan, keeping, rank, farewell=options.farewell)
        return summarise(done, plan, rank)


def check_memory(plan: Plan, rank: Rank, *, doing: str, comparing: bool) -> None:
    """Refuse before any work what surely does not fit; all ranks come to the same answer."""
    require_room(training_bytes(plan, rank.ranks), rank.device, doing=doing, smaller=SMALLER)
    if comparing:
        require_room(
            checking_bytes(plan, rank.ranks),
            rank.device,
            doing=f"{doing} by a single process ({ALONE})",
            smaller=SMALLER,
        )


def keeping_of(options: TransformerOptions, plan: Plan, ranks: int) -> Keeping:
    """Look for a checkpoint before any work."""
    folder, every, attempt = options.checkpoint, options.checkpoint_every, options.attempt
    if folder is None:
        return Keeping(folder, every, attempt)
    found, checked = find(folder, plan, ranks)
    return Keeping(folder, every, agreed_claim(folder, attempt), found, checked)


def compares(plan: Plan, keeping: Keeping) -> bool:
    """Return whether to compare: not if a checkpoint tells what was found of the same way."""
    return plan.check_steps > 0 and keeping.checked is None


def work(plan: Plan, keeping: Keeping, rank: Rank, *, farewell: Path | None) -> Found:
    """Check, train, time."""
    place = Place(index=rank.index, ranks=rank.ranks, device=rank.device.torch)
    if compares(plan, keeping):
        checked, expected = check(plan, place)
        keeping = replace(keeping, checked=checked, expected=tuple(expected))
    learner = new_learner(plan, operations(plan.kernels, compiled=plan.compiled), place)
    with leaving(farewell, rank.local_index):
        trained = train(learner, keeping)
    speeds = measure_speeds(learner)
    return Found(agreement=keeping.checked, trained=trained, speeds=speeds)


def check(plan: Plan, place: Place) -> tuple[Agreement, list[float]]:
    """Compare the first steps with those of a single process that has torch's kernels.

    Every rank computes the reference for itself: it would wait otherwise. Its losses come back
    beside how near they are.
    """
    torchs = operations("torch", compiled=False)
    reference = curve(single_learner(plan, torchs, place), plan.check_steps)
    forget_peak(place.device)
    dist.barrier()
    chosen = operations(plan.kernels, compiled=plan.compiled)
    found = curve(new_learner(plan, chosen, place), plan.check_steps)
    forget_peak(place.device)
    if place.index == 0:
        logger.info(
            "losses %s, of a single process with torch's kernels %s", found.losses, reference.losses
        )
    with all_or_none():
        agreement = compare(found, reference, plan)
    logger.info("%s", agreement)
    return agreement, reference.losses
