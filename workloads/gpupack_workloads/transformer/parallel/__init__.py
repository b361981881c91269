# SPDX-License-Identifier: Apache-2.0
"""Ways to distribute one training over ranks: whole batches in, whole losses out.

Whatever the way, a step does the arithmetic of a single process up to the order of sums.
"""

import importlib
from dataclasses import replace

from gpupack_workloads.transformer.operations import Operations
from gpupack_workloads.transformer.parallel.learner import Learner, Single, WorldRank
from gpupack_workloads.transformer.plan import SHARING, Plan

__all__ = ["Learner", "WorldRank", "new_learner", "single_learner"]

MODULES = {
    "ddp": ("layouts", "Replicas"),
    "fsdp": ("layouts", "Shards"),
    "tp": ("layouts", "Tensors"),
    "pp": ("pipeline", "Pipeline"),
}


def new_learner(plan: Plan, operations: Operations, world_rank: WorldRank) -> Learner:
    """Return an untrained network, spread over all ranks as planned."""
    if world_rank.ranks == 1:
        return Single(plan, operations, world_rank)
    module, name = MODULES[plan.parallel]
    kind = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    learner: Learner = kind(plan, operations, world_rank)
    return learner


def single_learner(plan: Plan, operations: Operations, world_rank: WorldRank) -> Learner:
    """Return an untrained network that this process trains alone, on whole batches.

    They are cut into parts as small as those of the ranks, and so take no more memory.
    """
    sharing_ranks = world_rank.ranks if plan.parallel in SHARING else 1
    alone = replace(plan, parts=plan.parts * sharing_ranks)
    return Single(alone, operations, replace(world_rank, index=0, ranks=1))
