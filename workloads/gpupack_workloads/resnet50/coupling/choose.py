# SPDX-License-Identifier: Apache-2.0
"""Which coupling suits a gang, and a trainer that uses it."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch.distributed as dist

from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.distributed.reach import reach_one_another
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.resnet50.coupling.buckets import Buckets
from gpupack_workloads.resnet50.coupling.collective import Collective
from gpupack_workloads.resnet50.coupling.copies import Copies
from gpupack_workloads.resnet50.coupling.ddp import replicated
from gpupack_workloads.resnet50.coupling.exchange import Exchange
from gpupack_workloads.resnet50.coupling.room import MappedRoom
from gpupack_workloads.resnet50.objective import Objective, trainer
from gpupack_workloads.resnet50.options import AUTO, COPIES, DDP, FLAT
from gpupack_workloads.resnet50.plan import Plan
from gpupack_workloads.training.steps import Trainer


def decided(plan: Plan, rank: Rank) -> Plan:
    """Return the plan with a coupling that works here.

    Raises:
        BadArgument: the one that was asked for does not.
    """
    can_copy = reach_one_another(rank)
    if plan.coupling == AUTO:
        return replace(plan, coupling=COPIES if can_copy else FLAT)
    if plan.coupling == COPIES and not can_copy:
        raise BadArgument(
            "--coupling=copies needs two or more GPUs in one worker that reach one another's"
            " memory; use flat or ddp"
        )
    return plan


@contextlib.contextmanager
def coupled(objective: Objective, plan: Plan, rank: Rank, count: int) -> Iterator[Trainer]:
    """Yield what trains the replicas of the first ranks as one; each for itself afterwards."""
    device = rank.device.torch
    group = dist.new_group(list(range(count))) if count < rank.ranks else None
    if rank.index >= count:
        yield trainer(objective, plan, device)
    elif plan.coupling == DDP:
        replica = replicated(objective, rank, bucket_mib=plan.bucket_mib, group=group)
        yield trainer(objective, plan, device, loss_of=replica)
    else:
        with bucketed(objective, plan, rank, group) as buckets:
            yield trainer(objective, plan, device, synchronise=buckets.synchronise)


@contextlib.contextmanager
def bucketed(
    objective: Objective, plan: Plan, rank: Rank, group: dist.ProcessGroup | None = None
) -> Iterator[Buckets]:
    """Give all replicas the first one's values; yield buckets for their gradients."""
    for tensor in (*objective.parameters(), *objective.buffers()):
        dist.broadcast(tensor.detach(), src=0, group=group)
    segments = objective.network.segments
    exchange = exchange_for(plan, rank, group)
    with contextlib.closing(Buckets(segments, exchange, bucket_mib=plan.bucket_mib)) as buckets:
        yield buckets


def exchange_for(plan: Plan, rank: Rank, group: dist.ProcessGroup | None) -> Exchange:
    """Return what makes the plan's buffers."""
    if plan.coupling != COPIES:
        return Collective(rank, group)
    everyone = group or dist.group.WORLD
    device = rank.device.torch
    room = partial(MappedRoom, device=device, group=everyone)
    return Copies(dist.get_world_size(group), device, room)
