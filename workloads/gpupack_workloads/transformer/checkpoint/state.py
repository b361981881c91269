# SPDX-License-Identifier: Apache-2.0
"""Writes and reads checkpoints: parameters and optimiser state by name, whole or in shards.

Names and shapes are those of the single-process network whatever the way it was spread, so another
number of ranks, or another way, reads what it needs of each tensor.
"""

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.transformer.checkpoint.checks import damaged, require_intact, require_shared
from gpupack_workloads.transformer.checkpoint.folder import (
    ABOUT,
    Checkpoint,
    claim,
    forget_old,
    latest,
    point_at,
    prepare,
    refuse_if_replaced,
)
from gpupack_workloads.transformer.parallel import Learner
from gpupack_workloads.transformer.plan import Plan
from gpupack_workloads.transformer.verification import CurveErrors, errors_with_bounds

logger = logging.getLogger(__name__)

# By parameters' names, not by their numbers, which a pipeline's stages count each for itself.
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def save(
    learner: Learner, folder: Path, checkpoint: Checkpoint, checked: CurveErrors | None
) -> None:
    """Write a checkpoint by all ranks, then make it the latest.

    Raises:
        WorkloadError: a later attempt has taken over the folder.
    """
    place = folder / checkpoint.name
    with all_or_none():
        if learner.world_rank.index == 0:
            refuse_if_replaced(folder, checkpoint.attempt)
    dcp.save(state_of(learner), checkpoint_id=str(place))
    # No rank leaves, or writes the next one, before this one counts.
    with all_or_none():
        if learner.world_rank.index == 0:
            (place / ABOUT).write_text(
                json.dumps(about(learner.plan, learner.world_rank.ranks, checked))
            )
            point_at(folder, checkpoint)
            forget_old(folder, checkpoint)
            logger.info("saved %s", place)


def find(folder: Path, plan: Plan, ranks: int) -> tuple[Checkpoint | None, CurveErrors | None]:
    """Return the latest checkpoint that a training can go on from, and what was checked before it.

    What was checked of other kernels, or of another way, says nothing of these.

    Raises:
        BadArgument: it is of another network, or the folder cannot be used by all ranks.
    """
    with all_or_none():
        prepare(folder)
    require_shared(folder)
    found = agreed_latest(folder)
    if found is None:
        return None, None
    with all_or_none():
        checked = read_about(folder / found.name, plan, ranks)
        require_intact(folder / found.name)
    return found, checked


def agreed_claim(folder: Path, attempt: int) -> int:
    """Return the number under which all ranks save: rank 0 claims it."""
    numbers = [attempt]
    with all_or_none():
        if dist.get_rank() == 0:
            numbers = [claim(folder, attempt)]
    dist.broadcast_object_list(numbers)
    return numbers[0]


def load(learner: Learner, folder: Path, checkpoint: Checkpoint) -> None:
    """Give a network and its optimiser the state of a checkpoint.

    Raises:
        BadArgument: what the files hold cannot be read.
    """
    state, place = state_of(learner), folder / checkpoint.name
    try:
        dcp.load(state, checkpoint_id=str(place))
    except CheckpointException as error:
        # All ranks get it, each with the errors of all.
        reasons = {f"{reason!r}" for reason, _ in error.failures.values()}
        raise damaged(place, ", ".join(sorted(reasons))) from error
    set_model_state_dict(learner.module, state["model"])
    set_optimizer_state_dict(learner.module, learner.optimizer, state["optimizer"], options=FLAT)
    logger.info("resumed from %s", place)


def agreed_latest(folder: Path) -> Checkpoint | None:
    """Return what rank 0 sees: a shared folder may show ranks different moments."""
    seen: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            seen = [latest(folder)]
        except BadArgument as error:
            seen = [str(error)]
    dist.broadcast_object_list(seen)
    if isinstance(seen[0], str):
        raise BadArgument(seen[0])
    found: Checkpoint | None = seen[0]
    return found


def read_about(place: Path, plan: Plan, ranks: int) -> CurveErrors | None:
    """Return the comparison of first steps of an attempt that computed in the same way.

    Raises:
        BadArgument: the checkpoint is of another network, or does not name its network.
    """
    try:
        theirs = json.loads((place / ABOUT).read_text())
        network, stored = dict(theirs["network"]), theirs["checked"]
        same = theirs.get("way") == way_of(plan, ranks)
        checked = None if stored is None else curve_errors_of(stored, plan)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise damaged(place, f"{ABOUT} does not name its network ({error!r})") from error
    ours = network_of(plan)
    differing = [
        f"{key} {network.get(key)} and not {ours[key]}"
        for key in ours
        if network.get(key) != ours[key]
    ]
    if differing:
        raise BadArgument(f"{place} is of another network: {', '.join(differing)}")
    return checked if same else None


def curve_errors_of(stored: dict[str, Any], plan: Plan) -> CurveErrors:
    """Return the comparison that a checkpoint records, with our own bounds.

    The file may contain anything.
    """
    return errors_with_bounds(
        error=float(stored["error"]),
        gradient_error=float(stored["gradient_error"]),
        weight_error=float(stored["weight_error"]),
        steps=int(stored["steps"]),
        dtype=plan.dtype,
    )


def about(plan: Plan, ranks: int, checked: CurveErrors | None) -> dict[str, Any]:
    """Return what a checkpoint says of itself."""
    return {
        "network": network_of(plan),
        "way": way_of(plan, ranks),
        "checked": None if checked is None else asdict(checked),
    }


def network_of(plan: Plan) -> dict[str, int]:
    """Return what must be the same for a training to go on; the sequence's length may differ."""
    sizes = {name: size for name, size in asdict(plan.shape).items() if name != "sequence"}
    return sizes | {"seed": plan.seed}


def way_of(plan: Plan, ranks: int) -> dict[str, int | str | bool]:
    """Return what decides which kernels run, on which sizes, and how ranks share the work."""
    return {
        "kernels": plan.kernels,
        "compiled": plan.compiled,
        "recompute": plan.recompute,
        "dtype": plan.dtype,
        "parallel": plan.parallel,
        "ranks": ranks,
        "batch_size": plan.batch_size,
        "parts": plan.parts,
        "sequence": plan.shape.sequence,
    }


def state_of(learner: Learner) -> dict[str, Any]:
    """Return parameters and optimiser state by name."""
    return {
        "model": get_model_state_dict(learner.module),
        "optimizer": get_optimizer_state_dict(learner.module, learner.optimizer, options=FLAT),
    }
