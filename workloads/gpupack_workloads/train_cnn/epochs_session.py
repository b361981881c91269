# SPDX-License-Identifier: Apache-2.0
"""One process of a training by epochs: reads the images, trains, tests the network."""

import math
import statistics
import zlib

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from gpupack_workloads.devices import describe, memory_errors
from gpupack_workloads.distributed.memory_check import require_memory_on_all_ranks
from gpupack_workloads.distributed.rank import Rank, group
from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import BadArgument, WrongResult
from gpupack_workloads.resnet50.replica_checks import check_replicas
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.train_cnn.epochs import Course, Epoch, Parts, train
from gpupack_workloads.train_cnn.images import Images
from gpupack_workloads.train_cnn.loading import hold_out
from gpupack_workloads.train_cnn.memory_estimate import step_bytes
from gpupack_workloads.train_cnn.model import seeded_network
from gpupack_workloads.train_cnn.options import CnnOptions
from gpupack_workloads.train_cnn.plan import EpochPlan, epoch_plan_for
from gpupack_workloads.train_cnn.session import load

MISTAKEN = 1e-6
"""How likely at most guesses may be taken for learning."""


def measure(options: CnnOptions, backend: str) -> Result:
    """Join the group, train, return the result."""
    with group(backend, require_gpu=options.require_gpu) as rank:
        plan = epoch_plan_for(options, rank.device, ranks=rank.ranks)
        doing = f"training on batches of {plan.batch_size} images"
        require_memory_on_all_ranks(
            step_bytes(options, plan), rank.device, doing=doing, smaller="--batch-size"
        )
        with memory_errors(doing):
            with all_or_none():
                parts = divided(options, plan)
                bound = chance_bound(parts.test.labels)
            check_same_images(parts, rank)
            torch.backends.cudnn.benchmark = True
            model = seeded_network(
                channels=options.channels, edge=options.edge, width=plan.width, seed=plan.seed
            ).to(rank.device.torch)
            course = train(model, parts, plan, rank)
        check_replicas(model, rank)
        result = summarise(course, parts, plan=plan, bound=bound, rank=rank)
        check(course, bound, result)
        return result


def divided(options: CnnOptions, plan: EpochPlan) -> Parts:
    """Read images, or make some up, and hold some out."""
    split = load(options, plan)
    learnt_from, validation = hold_out(split.train, seed=plan.seed)
    return Parts(train=learnt_from, validation=validation, test=split.test)


def chance_bound(labels: npt.NDArray[np.int64]) -> float:
    """Return the accuracy that guessing exceeds only once in 1 / `MISTAKEN` trials.

    The best guess is always the most frequent class, right for a share p of n images. By
    Hoeffding's inequality (1963) more than p + sqrt(ln(1 / MISTAKEN) / 2n) of them are right by
    chance with a probability of at most MISTAKEN, however the guesses are made.

    Raises:
        BadArgument: there are too few images.
    """
    most_frequent = int(np.bincount(labels).max()) / len(labels)
    bound = most_frequent + math.sqrt(math.log(1 / MISTAKEN) / (2 * len(labels)))
    if bound >= 1:
        raise BadArgument(
            f"{len(labels)} test images, {most_frequent:.0%} of them of one class, are not enough"
            " to distinguish learning from guessing: use more"
        )
    return bound


def check_same_images(parts: Parts, rank: Rank) -> None:
    """Make sure that all ranks have read the same files.

    Raises:
        BadArgument: their volumes hold different ones.
    """
    mine = torch.tensor([fingerprint(parts)], device=rank.device.torch)
    least, most = mine.clone(), mine.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    if not torch.equal(least, most):
        raise BadArgument(
            f"rank {rank.index}: other workers have read other images:"
            " give all the same --dataset, --seed and files"
        )


def fingerprint(parts: Parts) -> int:
    """Return a number that other images would hardly have."""
    number = 0
    for images in (parts.train, parts.validation, parts.test):
        for values in (images.pixels, images.labels):
            number = zlib.crc32(np.ascontiguousarray(values).data, number)
    return number


def check(course: Course, bound: float, result: Result) -> None:
    """Refuse a training in which nothing was learnt.

    Raises:
        WrongResult: the loss did not fall, or the accuracy is what guessing gives.
    """
    # The best epoch's: a loss may leap in the last one, and much be learnt all the same.
    first, least = course.untrained.loss, min(epoch.loss for epoch in course.epochs)
    if least < first and course.test.accuracy > bound:
        return
    raise WrongResult(
        f"nothing was learnt: the loss went from {first:.4g} to {least:.4g} at best, and"
        f" {course.test.accuracy:.2%} of {course.test.images} test images are right, where guessing"
        f" reaches {bound:.2%}: set more --epochs or another --learning-rate than"
        f" {result.metrics['learning_rate']}; if that worked before, try another GPU",
        unverified(result),
    )


def unverified(result: Result) -> Result:
    """Return a result that is marked as not verified."""
    return Result(
        workload=result.workload,
        headline=headline("nothing was learnt", simulated=result.simulated),
        verified=False,
        simulated=result.simulated,
        metrics=result.metrics,
        rows=result.rows,
    )


def summarise(course: Course, parts: Parts, *, plan: EpochPlan, bound: float, rank: Rank) -> Result:
    """Make the result out of a training."""
    last = course.epochs[-1]
    seconds = statistics.median(epoch.seconds for epoch in course.epochs)
    accuracy = course.test.accuracy
    return Result(
        workload="train-cnn",
        headline=headline(
            f"{accuracy:.2%} of test images right, {plan.dataset}", simulated=rank.device.simulated
        ),
        verified=True,
        simulated=rank.device.simulated,
        metrics={
            "test_accuracy": round(accuracy, 5),
            "test_accuracy_bound": round(bound, 5),
            "validation_accuracy": round(last.validation.accuracy, 5),
            "loss": round(last.loss, 5),
            "untrained_loss": round(course.untrained.loss, 5),
            "test_loss": round(course.test.loss, 5),
            "epoch_seconds": round(seconds, 4),
            "images_per_s": round(len(parts.train.labels) / seconds, 2),
            "dataset": plan.dataset,
            "epochs": plan.epochs,
            "optimizer": plan.optimizer,
            "learning_rate": float(f"{plan.learning_rate:.6g}"),
            "batch_size": plan.batch_size,
            "global_batch_size": plan.batch_size * rank.ranks,
            "ranks": rank.ranks,
            "seed": plan.seed,
            **sizes(parts),
            **describe(rank.device),
        },
        rows=[row(number, epoch) for number, epoch in enumerate(course.epochs, start=1)],
    )


def sizes(parts: Parts) -> dict[str, Scalar]:
    """Return how many images each part has."""
    images: dict[str, Images] = {
        "train": parts.train,
        "validation": parts.validation,
        "test": parts.test,
    }
    return {f"{name}_images": len(part.labels) for name, part in images.items()}


def row(number: int, epoch: Epoch) -> dict[str, Scalar]:
    """Return one epoch's line of the table."""
    return {
        "epoch": number,
        "loss": round(epoch.loss, 5),
        "validation_loss": round(epoch.validation.loss, 5),
        "validation_accuracy": round(epoch.validation.accuracy, 5),
        "seconds": round(epoch.seconds, 4),
    }
