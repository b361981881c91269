# SPDX-License-Identifier: Apache-2.0
"""A network and its loss as one module, so that both are compiled, and wrapped by DDP, together."""

from collections.abc import Callable

import torch
from torch import nn

from gpupack_workloads.resnet50.data import images
from gpupack_workloads.resnet50.model import ResNet50
from gpupack_workloads.resnet50.plan import Plan
from gpupack_workloads.seeds import generator_seed
from gpupack_workloads.training.steps import Batch, LossOf, Trainer

MOMENTUM = 0.9
WEIGHT_DECAY = 5e-5


class Objective(nn.Module):
    """Module from images and classes to the mean cross-entropy."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        return nn.functional.cross_entropy(self.network(images), labels)


def new_objective(plan: Plan, device: torch.device) -> Objective:
    """Return an untrained network; one seed gives one network on every rank."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(plan.seed)
        network = ResNet50(folded_stem=plan.folded_stem)
    layout = torch.channels_last if plan.channels_last else torch.contiguous_format
    return Objective(network.to(device, memory_format=layout))


def trainer(
    objective: nn.Module,
    plan: Plan,
    device: torch.device,
    *,
    loss_of: LossOf | None = None,
    learning_rate: float | None = None,
    synchronise: Callable[[], None] = lambda: None,
) -> Trainer:
    """Return fresh optimiser state around an objective's parameters.

    Args:
        objective: what is trained.
        plan: the optimiser's settings.
        device: where.
        loss_of: what computes the loss, if it is wrapped.
        learning_rate: another one than the plan's.
        synchronise: called before each update.
    """
    optimizer = torch.optim.SGD(
        objective.parameters(),
        lr=learning_rate or plan.learning_rate,
        momentum=MOMENTUM,
        weight_decay=WEIGHT_DECAY,
        fused=device.type == "cuda",
    )
    return Trainer(
        objective if loss_of is None else loss_of,
        optimizer,
        precision=plan.precision,
        device=device,
        synchronise=synchronise,
    )


def batches(plan: Plan, device: torch.device, *, rank: int) -> list[Batch]:
    """Return the batches that a rank sees in turn."""
    return [
        images(
            count=plan.batch_size,
            size=plan.size,
            seed=generator_seed((plan.seed + rank) * plan.pool + index),
            device=device,
            dtype=plan.precision.dtype,
            channels_last=plan.channels_last,
        )
        for index in range(plan.pool)
    ]
