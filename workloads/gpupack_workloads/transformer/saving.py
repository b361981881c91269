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
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.transformer.folder import Checkpoint, forget_old, latest, point_at, prepare
from gpupack_workloads.transformer.parallel import Learner
from gpupack_workloads.transformer.plan import Plan

logger = logging.getLogger(__name__)

# By parameters' names, not by their numbers, which a pipeline's stages count each for itself.
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
ABOUT = "network.json"


def save(learner: Learner, folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint by all ranks, then make it the latest."""
    place = folder / checkpoint.name
    dcp.save(state_of(learner), checkpoint_id=str(place))
    if learner.place.index == 0:
        (place / ABOUT).write_text(json.dumps(about(learner.plan)))
        point_at(folder, checkpoint)
        forget_old(folder, checkpoint)
        logger.info("saved %s", place)
    # Nobody leaves, or writes the next one, before this one counts.
    dist.barrier()


def find(folder: Path, plan: Plan) -> Checkpoint | None:
    """Return the latest checkpoint that a training can go on from, if there is one.

    Raises:
        BadArgument: it is of another network, or the folder cannot be used.
    """
    prepare(folder)
    found = agreed_latest(folder)
    if found is not None:
        refuse_others(folder / found.name, plan)
    return found


def load(learner: Learner, folder: Path, checkpoint: Checkpoint) -> None:
    """Give a network and its optimiser the state of a checkpoint."""
    state = state_of(learner)
    dcp.load(state, checkpoint_id=str(folder / checkpoint.name))
    set_model_state_dict(learner.module, state["model"])
    set_optimizer_state_dict(learner.module, learner.optimizer, state["optimizer"], options=FLAT)
    logger.info("resumed from %s", folder / checkpoint.name)


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


def refuse_others(place: Path, plan: Plan) -> None:
    """Refuse a checkpoint of another network.

    Raises:
        BadArgument: sizes differ, or it does not say whose it is.
    """
    try:
        theirs = json.loads((place / ABOUT).read_text())
    except (OSError, ValueError) as error:
        raise BadArgument(f"{place} does not say of which network it is: {error}") from error
    ours = about(plan)
    if theirs != ours:
        differences = [f"{key} {theirs.get(key)} and not {ours[key]}" for key in ours]
        differing = [
            text
            for key, text in zip(ours, differences, strict=True)
            if theirs.get(key) != ours[key]
        ]
        raise BadArgument(f"{place} is of another network: {', '.join(differing)}")


def about(plan: Plan) -> dict[str, int]:
    """Return what must be the same for a training to go on; the sequence's length may differ."""
    sizes = {name: size for name, size in asdict(plan.shape).items() if name != "sequence"}
    return sizes | {"seed": plan.seed}


def state_of(learner: Learner) -> dict[str, Any]:
    """Return parameters and optimiser state by name."""
    return {
        "model": get_model_state_dict(learner.module),
        "optimizer": get_optimizer_state_dict(learner.module, learner.optimizer, options=FLAT),
    }
