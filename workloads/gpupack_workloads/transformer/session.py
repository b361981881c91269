# SPDX-License-Identifier: Apache-2.0
"""Runs this worker's processes; each compares first steps with a single process, trains, times.

A signal to end reaches them, and they save before they leave.
"""

import logging
import tempfile
from dataclasses import replace
from pathlib import Path

import torch.distributed as dist

from gpupack_workloads.devices import memory_errors
from gpupack_workloads.distributed.launch import launch
from gpupack_workloads.distributed.memory_check import require_memory_on_all_ranks
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import Cancelled, Interrupted, Terminated, WorkloadError
from gpupack_workloads.results import Result
from gpupack_workloads.settings import Gang
from gpupack_workloads.training.memory import forget_peak
from gpupack_workloads.transformer.checkpoint.state import agreed_claim, find
from gpupack_workloads.transformer.memory_estimate import checking_bytes, training_bytes
from gpupack_workloads.transformer.operations import operations
from gpupack_workloads.transformer.options import TransformerOptions
from gpupack_workloads.transformer.parallel import WorldRank, new_learner, single_learner
from gpupack_workloads.transformer.plan import Plan, plan_for
from gpupack_workloads.transformer.speed import measure_speeds
from gpupack_workloads.transformer.stopping import leaving, missing
from gpupack_workloads.transformer.summary import RunFigures, summarise
from gpupack_workloads.transformer.training import CheckpointOptions, train
from gpupack_workloads.transformer.verification import CurveErrors, compare, curve

logger = logging.getLogger(__name__)

# The comparison holds the whole network on every rank, which training may not have to.
ALONE = "--check-steps 0 would not compare"
SMALLER = "--batch-size, --sequence, --layers or --width"


def run(options: TransformerOptions, gang: Gang) -> Result:
    """Run this worker's processes; return what the first reports.

    Raises:
        Interrupted: a signal to end came, here or at another worker, and all have left in order.
        WorkloadError: as `launch` does, or processes were killed before they had saved.
    """
    with tempfile.TemporaryDirectory() as saved_marks:
        try:
            return launch(measure, replace(options, saved_marks=Path(saved_marks)), gang)
        except (Cancelled, Terminated) as signalled:
            raise ended(str(signalled), missing(Path(saved_marks))) from signalled


def measure(options: TransformerOptions, backend: str) -> Result:
    """Join the group, train, return the result."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        plan = plan_for(options, ranks=rank.ranks, simulated=rank.device.simulated)
        keeping = keeping_of(options, plan, rank.ranks)
        doing = f"training on {plan.batch_size} rows of {plan.shape.sequence} tokens"
        check_memory(plan, rank, doing=doing, comparing=compares(plan, keeping))
        with memory_errors(f"{doing} ({ALONE})"):
            done = work(plan, keeping, rank, saved_marks=options.saved_marks)
        return summarise(done, plan, rank)


def check_memory(plan: Plan, rank: Rank, *, doing: str, comparing: bool) -> None:
    """Check before any work that the memory suffices; all ranks get the same answer."""
    require_memory_on_all_ranks(
        training_bytes(plan, rank.ranks), rank.device, doing=doing, smaller=SMALLER
    )
    if comparing:
        require_memory_on_all_ranks(
            checking_bytes(plan, rank.ranks),
            rank.device,
            doing=f"{doing} by a single process ({ALONE})",
            smaller=SMALLER,
        )


def keeping_of(options: TransformerOptions, plan: Plan, ranks: int) -> CheckpointOptions:
    """Look for a checkpoint before any work."""
    folder, every, attempt = options.checkpoint, options.checkpoint_every, options.attempt
    if folder is None:
        return CheckpointOptions(folder, every, attempt)
    found, checked = find(folder, plan, ranks)
    return CheckpointOptions(folder, every, agreed_claim(folder, attempt), found, checked)


def compares(plan: Plan, keeping: CheckpointOptions) -> bool:
    """Return whether to compare: not if a checkpoint has the comparison of the same way."""
    return plan.check_steps > 0 and keeping.checked is None


def work(
    plan: Plan, keeping: CheckpointOptions, rank: Rank, *, saved_marks: Path | None
) -> RunFigures:
    """Check, train, time."""
    world_rank = WorldRank(index=rank.index, ranks=rank.ranks, device=rank.device.torch)
    if compares(plan, keeping):
        checked, expected = check(plan, world_rank)
        keeping = replace(keeping, checked=checked, expected=tuple(expected))
    learner = new_learner(plan, operations(plan.kernels, compiled=plan.compiled), world_rank)
    with leaving(saved_marks, rank.local_index):
        trained = train(learner, keeping)
    speeds = measure_speeds(learner)
    return RunFigures(curve_errors=keeping.checked, trained=trained, speeds=speeds)


def check(plan: Plan, world_rank: WorldRank) -> tuple[CurveErrors, list[float]]:
    """Compare the first steps with those of a single process that has torch's kernels.

    Every rank computes the reference for itself: it would wait otherwise. Its losses come back
    and how near they are.
    """
    torchs = operations("torch", compiled=False)
    reference = curve(single_learner(plan, torchs, world_rank), plan.check_steps)
    forget_peak(world_rank.device)
    dist.barrier()
    chosen = operations(plan.kernels, compiled=plan.compiled)
    found = curve(new_learner(plan, chosen, world_rank), plan.check_steps)
    forget_peak(world_rank.device)
    if world_rank.index == 0:
        logger.info(
            "losses %s, of a single process with torch's kernels %s", found.losses, reference.losses
        )
    with all_or_none():
        curve_errors = compare(found, reference, plan)
    logger.info("%s", curve_errors)
    return curve_errors, reference.losses


def ended(reason: str, unsaved: list[str]) -> WorkloadError:
    """Return the error after a signal to end: whether all processes have saved."""
    if unsaved:
        return WorkloadError(
            f"{reason}; process(es) {', '.join(unsaved)} were gone before they had"
            " saved: the next attempt continues from the checkpoint before"
        )
    return Interrupted(f"{reason}; checkpoints, if kept, are saved")
