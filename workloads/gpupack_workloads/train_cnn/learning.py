# SPDX-License-Identifier: Apache-2.0
"""Trains one network from the start with one technique, and returns its cost and accuracy."""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from gpupack_workloads.timing import seconds_per_call
from gpupack_workloads.train_cnn.images import Images
from gpupack_workloads.train_cnn.model import seeded_network
from gpupack_workloads.train_cnn.plan import Plan, Technique
from gpupack_workloads.training.memory import forget_peak, peak_mib
from gpupack_workloads.training.steps import Batch, Trainer

LEARNING_RATE = 3e-3


@dataclass(frozen=True, kw_only=True)
class TechniqueResult:
    """Cost and accuracy of a technique.

    Attributes:
        step_seconds: the mean of the timed steps.
        peak_mib: MiB of tensors, data included.
        loss: loss of the last training batch, before the last step.
        accuracy: share of correctly classified test images.
        loss_scale: scale of the gradient scaler at the end.
    """

    step_seconds: float
    peak_mib: int
    loss: float
    accuracy: float
    loss_scale: float


def learn(
    technique: Technique, plan: Plan, *, train: Images, test: Images, device: torch.device
) -> TechniqueResult:
    """Train and judge one network."""
    torch.backends.cudnn.benchmark = technique.benchmark
    forget_peak(device)
    model = new_network(technique, plan, shape=train.pixels.shape, device=device)
    trainer = new_trainer(model, technique, device)
    turn = itertools.cycle(batches(train, plan.batch_size, technique, device))
    seconds = seconds_per_call(
        lambda: trainer.step(cut(next(turn), technique.parts)),
        device=device,
        repeats=plan.steps - plan.warm_up - 1,
        warm_up=plan.warm_up,
    )
    loss = float(trainer.step(cut(next(turn), technique.parts)).item())
    peak = peak_mib(device)
    return TechniqueResult(
        step_seconds=seconds,
        peak_mib=peak,
        loss=loss,
        accuracy=accuracy(model, test, technique, plan, device),
        loss_scale=trainer.scale,
    )


def new_network(
    technique: Technique, plan: Plan, *, shape: tuple[int, ...], device: torch.device
) -> nn.Module:
    """Return an untrained network; it depends on the seed and not on the technique."""
    model = seeded_network(channels=shape[1], edge=shape[2], width=plan.width, seed=plan.seed)
    return model.to(device, memory_format=layout(technique))


def new_trainer(model: nn.Module, technique: Technique, device: torch.device) -> Trainer:
    """Return what takes steps on a network."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=device.type == "cuda")

    def loss_of(pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(pixels), labels)

    return Trainer(loss_of, optimizer, precision=technique.precision, device=device)


def batches(
    images: Images, batch_size: int, technique: Technique, device: torch.device
) -> list[Batch]:
    """Return whole batches on the device.

    They are kept there, as both data sets fit many times over; no loader is measured.
    """
    count = max(1, len(images.labels) // batch_size)
    chosen = np.arange(count * batch_size) % len(images.labels)
    return [
        (
            pixels_on(images.pixels[part], technique, device),
            torch.from_numpy(images.labels[part]).to(device),
        )
        for part in np.split(chosen, count)
    ]


def pixels_on(pixels: np.ndarray, technique: Technique, device: torch.device) -> torch.Tensor:
    """Return pixels from -1 to 1 in the technique's memory order."""
    values = torch.from_numpy(pixels).to(device).float() / 127.5 - 1
    return values.contiguous(memory_format=layout(technique))


def layout(technique: Technique) -> torch.memory_format:
    """Return the memory order of four-dimensional tensors."""
    return torch.channels_last if technique.channels_last else torch.contiguous_format


def cut(batch: Batch, parts: int) -> list[Batch]:
    """Return equal parts of a batch."""
    pixels, labels = batch
    return list(zip(pixels.chunk(parts), labels.chunk(parts), strict=True))


def accuracy(
    model: nn.Module, test: Images, technique: Technique, plan: Plan, device: torch.device
) -> float:
    """Return the share of correctly classified test images."""
    right = total = 0
    with torch.no_grad(), technique.precision.computing(device):
        for pixels, labels in batches(
            test, min(plan.batch_size, len(test.labels)), technique, device
        ):
            right += int((model(pixels).argmax(1) == labels).sum().item())
            total += len(labels)
    return right / total
