# SPDX-License-Identifier: Apache-2.0
"""Pipeline parallelism: every rank has some layers; micro-batches follow each other through them.

The schedule is 1F1B: a stage starts a gradient as soon as one can come back, so that it never keeps
more micro-batches than there are stages after it.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from gpupack_workloads.transformer.language import Batch
from gpupack_workloads.transformer.model import Decoder
from gpupack_workloads.transformer.operations import Operations
from gpupack_workloads.transformer.parallel.learner import (
    TYPES,
    Learner,
    WorldRank,
    decoder_of,
    new_optimizer,
)
from gpupack_workloads.transformer.plan import Plan


class Pipeline(Learner):
    """Pipeline parallelism with one stage on each rank."""

    def __init__(self, plan: Plan, operations: Operations, world_rank: WorldRank) -> None:
        super().__init__(plan, world_rank)
        whole = decoder_of(plan, operations, world_rank.device)
        self.module = stage_of(whole, index=world_rank.index, stages=world_rank.ranks)
        self.last = world_rank.index == world_rank.ranks - 1
        self.optimizer = new_optimizer(self.module, plan)
        # Few micro-batches cannot fill 1F1B, which then refuses to run.
        kind: Any = Schedule1F1B if plan.parts >= world_rank.ranks else ScheduleGPipe
        self.schedule = kind(
            pipeline_stage(self.module, plan, world_rank), plan.parts, loss_fn=whole.loss
        )

    def backward(self, batch: Batch) -> torch.Tensor:
        """Send a batch through all stages and back."""
        losses: list[torch.Tensor] = []
        if self.world_rank.index == 0:
            self.schedule.step(batch.inputs)
        elif self.last:
            self.schedule.step(target=batch.targets, losses=losses)
        else:
            self.schedule.step()
        found = (
            torch.stack(losses).mean() if losses else torch.zeros((), device=self.world_rank.device)
        )
        mean = found.detach().clone()
        dist.broadcast(mean, src=self.world_rank.ranks - 1)
        return mean


def stage_of(decoder: Decoder, *, index: int, stages: int) -> Decoder:
    """Return a network with only one stage's parts; others are forgotten."""
    layers = list(decoder.blocks)
    first, after = (len(layers) * edge // stages for edge in (index, index + 1))
    for layer in layers[:first] + layers[after:]:
        del decoder.blocks[layer]
    if index > 0:
        decoder.embedding = None
    if index < stages - 1:
        decoder.norm = decoder.head = None
    return decoder


def pipeline_stage(module: Decoder, plan: Plan, world_rank: WorldRank) -> PipelineStage:
    """Give torch the inputs and outputs of a stage, which it would else find by running it."""
    rows, shape = plan.batch_size // plan.parts, plan.shape
    tokens = torch.empty((rows, shape.sequence), dtype=torch.long, device="meta")
    between, logits = (
        # Its gradient comes back from the next stage only if it says that it has one.
        torch.empty(
            (rows, shape.sequence, last), dtype=TYPES[plan.dtype], device="meta", requires_grad=True
        )
        for last in (shape.width, shape.vocabulary)
    )
    return PipelineStage(
        module,
        world_rank.index,
        world_rank.ranks,
        world_rank.device,
        input_args=(tokens if world_rank.index == 0 else between,),
        output_args=(logits if world_rank.index == world_rank.ranks - 1 else between,),
    )
