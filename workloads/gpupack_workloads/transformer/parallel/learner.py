# SPDX-License-Identifier: Apache-2.0
"""A network under training, by one process or as one of many."""

import contextlib
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from gpupack_workloads.transformer.language import Batch
from gpupack_workloads.transformer.model import Decoder, new_decoder
from gpupack_workloads.transformer.operations import Operations
from gpupack_workloads.transformer.plan import Plan

TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.1


@dataclass(frozen=True, kw_only=True)
class WorldRank:
    """Rank, number of ranks, and device."""

    index: int
    ranks: int
    device: torch.device


class Learner:
    """Holds a network and its optimiser, and takes steps.

    Attributes:
        module: what has the parameters, by their names in checkpoints.
        optimizer: over them.
    """

    module: nn.Module
    optimizer: torch.optim.Optimizer

    def __init__(self, plan: Plan, world_rank: WorldRank) -> None:
        self.plan, self.world_rank = plan, world_rank

    def step(self, batch: Batch) -> torch.Tensor:
        """Train on a batch of all ranks; return its mean loss, the same on every rank."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.backward(batch)
        self.optimizer.step()
        return loss

    def backward(self, batch: Batch) -> torch.Tensor:
        """Compute the gradient of a batch of all ranks; return its mean loss."""
        raise NotImplementedError

    def gradient_lengths(self) -> dict[str, float]:
        """Return the lengths of the last step's gradients by name, the same on every rank."""
        parameters = self.module.named_parameters()
        return self.lengths({name: p.grad for name, p in parameters if p.grad is not None})

    def weight_lengths(self) -> dict[str, float]:
        """Return the lengths of the parameters by name, the same on every rank."""
        return self.lengths(dict(self.module.named_parameters()))

    def lengths(self, tensors: dict[str, torch.Tensor]) -> dict[str, float]:
        """Return lengths of tensors of which this rank may have none, parts or the whole."""
        mine = squares(tensors)
        every = [mine]
        if self.world_rank.ranks > 1:
            every = [mine] * self.world_rank.ranks
            dist.all_gather_object(every, mine)
        return combined(every)


class Single(Learner):
    """One process; also the base of ways in which each rank computes its own losses."""

    def __init__(self, plan: Plan, operations: Operations, world_rank: WorldRank) -> None:
        super().__init__(plan, world_rank)
        self.module = decoder_of(plan, operations, world_rank.device)
        self.network = self.spread(self.module)
        self.optimizer = new_optimizer(self.module, plan)

    def spread(self, module: Decoder) -> nn.Module:
        """Return the network as it is called."""
        return module

    def backward(self, batch: Batch) -> torch.Tensor:
        """Add up the gradients of all parts."""
        total = torch.zeros((), device=self.world_rank.device)
        parts = self.mine(batch).parts(self.plan.parts)
        for number, part in enumerate(parts, start=1):
            with self.part(last=number == len(parts)):
                loss = self.network(part.inputs, part.targets) / len(parts)
                loss.backward()
            total += loss.detach()
        return self.mean(total)

    def mine(self, batch: Batch) -> Batch:
        """Return what this rank computes of a batch."""
        return batch

    def mean(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the mean of all ranks' losses."""
        return loss

    def part(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """Return what surrounds a part: gradients are exchanged in the last one."""
        del last
        return contextlib.nullcontext()


class Sharing(Single):
    """Data parallelism: each rank computes the losses of its share of a batch."""

    def mine(self, batch: Batch) -> Batch:
        """Return this rank's rows."""
        return batch.share(self.world_rank.index, self.world_rank.ranks)

    def mean(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the mean over ranks; shares are equal."""
        dist.all_reduce(loss)
        return loss / self.world_rank.ranks


@dataclass(frozen=True)
class Square:
    """A tensor's squared length, or that of the part which a rank has."""

    value: float
    part: bool


def squares(tensors: dict[str, torch.Tensor]) -> dict[str, Square]:
    """Return squared lengths of what is here of each tensor."""
    here = [t.to_local() if isinstance(t, DTensor) else t for t in tensors.values()]
    lengths = torch.stack([torch.linalg.vector_norm(t.detach().float()) for t in here])
    return {
        name: Square(length**2, isinstance(tensor, DTensor))
        for (name, tensor), length in zip(tensors.items(), lengths.tolist(), strict=True)
    }


def combined(every: list[dict[str, Square]]) -> dict[str, float]:
    """Return whole lengths out of what all ranks have: parts add up, copies are the same."""
    totals: dict[str, float] = {}
    for mine in every:
        for name, square in mine.items():
            before = totals.get(name, 0.0) if square.part else 0.0
            totals[name] = before + square.value
    return {name: math.sqrt(total) for name, total in totals.items()}


def decoder_of(plan: Plan, operations: Operations, device: torch.device) -> Decoder:
    """Return the plan's network, untrained."""
    return new_decoder(
        plan.shape,
        operations,
        dtype=TYPES[plan.dtype],
        recompute=plan.recompute,
        seed=plan.seed,
        device=device,
    )


def new_optimizer(module: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    """Return AdamW over a network.

    Parameters that are cut over ranks stand in a group of their own: torch updates a group at once,
    and cannot update both kinds at once.
    """
    parameters = list(module.parameters())
    cut = [parameter for parameter in parameters if isinstance(parameter, DTensor)]
    whole = [parameter for parameter in parameters if not isinstance(parameter, DTensor)]
    return torch.optim.AdamW(
        [{"params": group} for group in (whole, cut) if group],
        lr=plan.learning_rate,
        betas=BETAS,
        weight_decay=WEIGHT_DECAY,
        fused=parameters[0].device.type == "cuda",
    )
