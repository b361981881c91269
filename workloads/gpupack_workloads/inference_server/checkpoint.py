# SPDX-License-Identifier: Apache-2.0
"""Reads weights from a checkpoint of `transformer`."""

import json
import logging
import warnings
from dataclasses import asdict
from pathlib import Path

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.transformer.checkpoint.checks import damaged, require_intact
from gpupack_workloads.transformer.checkpoint.folder import ABOUT, latest
from gpupack_workloads.transformer.model import Decoder
from gpupack_workloads.transformer.plan import Shape

logger = logging.getLogger(__name__)


def load(decoder: Decoder, folder: Path, shape: Shape) -> None:
    """Give a network the weights of the latest checkpoint.

    Raises:
        BadArgument: there is none, it is of another network, or it is damaged.
    """
    found = latest(folder)
    if found is None:
        raise BadArgument(f"{folder} has no checkpoint of `transformer`")
    place = folder / found.name
    require_same(place, shape)
    require_intact(place)
    state = {"model": decoder.state_dict()}
    try:
        with warnings.catch_warnings():
            # It says that a single process loads, which is meant.
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
            dcp.load(state, checkpoint_id=str(place), no_dist=True)
    except CheckpointException as error:
        reasons = {f"{reason!r}" for reason, _ in error.failures.values()}
        raise damaged(place, ", ".join(sorted(reasons))) from error
    decoder.load_state_dict(state["model"])
    logger.info("weights of %s", place)


def require_same(place: Path, shape: Shape) -> None:
    """Refuse a checkpoint of other sizes; the length of sequences may differ."""
    try:
        network = dict(json.loads((place / ABOUT).read_text())["network"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(place, f"{ABOUT} does not name its network ({error!r})") from error
    differing = [
        f"{name} {network.get(name)} and not {size}"
        for name, size in asdict(shape).items()
        if name != "sequence" and network.get(name) != size
    ]
    if differing:
        raise BadArgument(f"{place} is of another network: {', '.join(differing)}")
