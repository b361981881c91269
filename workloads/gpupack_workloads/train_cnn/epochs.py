# SPDX-License-Identifier: Apache-2.0
"""One training by epochs: every rank learns from its part of the shuffled images, all as one."""

import logging
import math
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.train_cnn.images import Images
from gpupack_workloads.train_cnn.loading import Normalisation, Shuffled, normalisation, part_of
from gpupack_workloads.train_cnn.optimizers import new_optimizer
from gpupack_workloads.train_cnn.plan import EpochPlan
from gpupack_workloads.training.precision import Precision
from gpupack_workloads.training.steps import Trainer

logger = logging.getLogger(__name__)

EVALUATED = 1024
"""Images per batch where nothing is kept for a backward pass."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Judgement of a network on images that it did not learn from.

    Attributes:
        loss: mean cross-entropy per image.
        right: number of correctly classified images.
        images: all of them.
    """

    loss: float
    right: int
    images: int

    @property
    def accuracy(self) -> float:
        """Share of correctly classified images."""
        return self.right / self.images


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One pass over all images.

    Attributes:
        loss: mean per image over the epoch, each before the step that learns from it.
        seconds: seconds of the training, without the validation.
        validation: afterwards.
    """

    loss: float
    seconds: float
    validation: Judged


@dataclass(frozen=True, kw_only=True)
class Course:
    """A whole training.

    Attributes:
        untrained: the network before its first step, by the validation images.
        epochs: in order.
        test: the network after its last step, by images that nothing was chosen by.
    """

    untrained: Judged
    epochs: list[Epoch]
    test: Judged


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Images for training, validation and test."""

    train: Images
    validation: Images
    test: Images


def train(model: nn.Module, parts: Parts, plan: EpochPlan, rank: Rank) -> Course:
    """Train a network; all ranks call this together with the same network and images.

    Raises:
        WrongResult: the loss is no number any more.
    """
    normalise = normalisation(plan.dataset, rank.device.torch)
    loader = Shuffled(parts.train, batch_size=plan.batch_size, seed=plan.seed, rank=rank)
    trainer = new_trainer(model, plan, rank)
    untrained = judged(model, parts.validation, normalise, rank)
    epochs = []
    for number in range(1, plan.epochs + 1):
        loss, seconds = pass_over(loader, number, trainer, normalise, rank)
        epoch = Epoch(
            loss=loss,
            seconds=seconds,
            validation=judged(model, parts.validation, normalise, rank),
        )
        logger.info("epoch %d of %d: %s", number, plan.epochs, epoch)
        if not math.isfinite(loss):
            raise WrongResult(
                f"the loss is {loss} after epoch {number}: set a smaller --learning-rate than"
                f" {plan.learning_rate:g}; if a training that was stable does this, try another GPU"
            )
        epochs.append(epoch)
    return Course(
        untrained=untrained, epochs=epochs, test=judged(model, parts.test, normalise, rank)
    )


def new_trainer(model: nn.Module, plan: EpochPlan, rank: Rank) -> Trainer:
    """Return what takes steps on a network; several ranks step with their mean gradient (DDP)."""
    replica = model
    if rank.ranks > 1:
        replica = DistributedDataParallel(
            model, device_ids=None if rank.device.simulated else [rank.device.torch.index]
        )

    def loss_of(pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(replica(pixels), labels)

    optimizer = new_optimizer(plan.optimizer, model.parameters(), learning_rate=plan.learning_rate)
    return Trainer(loss_of, optimizer, precision=Precision("fp32"), device=rank.device.torch)


def pass_over(
    loader: Shuffled, number: int, trainer: Trainer, normalise: Normalisation, rank: Rank
) -> tuple[float, float]:
    """Learn from all images once; return the mean loss per image and the slowest rank's seconds."""
    device = rank.device.torch
    total, seen = torch.zeros((), dtype=torch.float64, device=device), 0
    start = time.perf_counter()
    for batch in loader.epoch(number):
        # Added up on the device: to read it would wait for every step.
        total += trainer.step([normalise(batch)]) * len(batch[1])
        seen += len(batch[1])
    if not rank.device.simulated:
        torch.cuda.synchronize()
    seconds = torch.tensor(time.perf_counter() - start, device=device)
    sums = torch.stack([total, torch.tensor(seen, dtype=torch.float64, device=device)])
    dist.all_reduce(sums)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return float((sums[0] / sums[1]).item()), float(seconds.item())


def judged(model: nn.Module, images: Images, normalise: Normalisation, rank: Rank) -> Judged:
    """Return loss and right answers over all images, each judged by one rank."""
    device = rank.device.torch
    found = torch.zeros(2, dtype=torch.float64, device=device)
    with torch.no_grad(), Precision("fp32").computing(device):
        for batch in part_of(images, batch_size=EVALUATED, rank=rank):
            pixels, labels = normalise(batch)
            logits = model(pixels)
            loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
            found += torch.stack([loss.double(), (logits.argmax(1) == labels).sum().double()])
    dist.all_reduce(found)
    (loss_sum, right), count = found.tolist(), len(images.labels)
    return Judged(loss=loss_sum / count, right=int(right), images=count)
