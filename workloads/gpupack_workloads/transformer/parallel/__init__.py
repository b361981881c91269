# SPDX-License-Identifier: Apache-2.0
"""Ways to spread one training over ranks: whole batches go in, their whole losses come out.

Whatever the way, a step does the arithmetic of a single process up to the order of sums.
"""

import importlib
from dataclasses import replace

from gpupack_workloads.transformer.operations import Operations
from gpupack_workloads.transformer.parallel.learner import Learner, Place, Single
from gpupack_workloads.transformer.plan import SHARING, Plan

__all__ = ["Learner", "Place", "new_learner", "single_learner"]

HOMES = {"ddp": "replicas", "fsdp": "shards", "tp": "tensors", "pp": "pipeline"}


def new_learner(plan: Plan, operations: Operations, place: Place) -> Learner:
    """Return an untrained network, spread over all ranks as planned."""
    if place.ranks == 1:
        return Single(plan, operations, place)
    home = importlib.import_module(f"{__name__}.{HOMES[plan.parallel]}")
    learner: Learner = home.Spread(plan, operations, place)
    return learner


def single_learner(plan: Plan, operations: Operations, place: Place) -> Learner:
    """Return an untrained network that this process trains alone, on whole batches.

    They are cut into parts as small as those of the ranks, and so take no more memory.
    """
    sharers = place.ranks if plan.parallel in SHARING else 1
    alone = replace(plan, parts=plan.parts * sharers)
    return Single(alone, operations, replace(place, index=0, ranks=1))
