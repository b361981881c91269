# SPDX-License-Identifier: Apache-2.0
"""Sizes of the training for a kind of device, and the techniques in their order."""

from dataclasses import dataclass

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.train_cnn.optimizers import usual_rate
from gpupack_workloads.train_cnn.options import EPOCHS, CnnOptions
from gpupack_workloads.training.precision import Precision

FP32 = Precision("fp32")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run with every default filled in.

    Attributes:
        width: channels of the network's first stage.
        train: how many images are made up to learn from.
        test: how many to be judged by.
    """

    batch_size: int
    steps: int
    warm_up: int
    accumulate: int
    width: int
    train: int
    test: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Technique:
    """Techniques of training; each adds one to the one before."""

    name: str
    benchmark: bool = False
    precision: Precision = FP32
    channels_last: bool = False
    parts: int = 1


@dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """A training by epochs with every default filled in.

    Attributes:
        dataset: which images.
        batch_size: images per step and process.
        width: channels of the network's first stage.
        train: how many images are made up to learn from, where none are real.
        test: how many to be judged by.
    """

    dataset: str
    epochs: int
    batch_size: int
    optimizer: str
    learning_rate: float
    width: int
    train: int
    test: int
    seed: int


def epoch_plan_for(options: CnnOptions, device: Device, *, ranks: int) -> EpochPlan:
    """Fill in what suits the device, and the number of processes."""
    batch_size = options.batch_size or 128
    return EpochPlan(
        dataset=options.dataset,
        epochs=options.epochs or EPOCHS,
        batch_size=batch_size,
        optimizer=options.optimizer,
        learning_rate=options.learning_rate
        or usual_rate(options.optimizer, batch_size=batch_size * ranks),
        width=8 if device.simulated else 64,
        train=1024 if device.simulated else 16_384,
        test=256 if device.simulated else 2048,
        seed=options.seed,
    )


def plan_for(options: CnnOptions, device: Device) -> Plan:
    """Fill in what suits the device.

    Raises:
        BadArgument: the batch cannot be cut into so many parts.
    """
    simulated = device.simulated
    batch_size = options.batch_size or (32 if simulated else 1024)
    if batch_size % options.accumulate:
        raise BadArgument(f"{options.accumulate} parts do not divide a batch of {batch_size}")
    steps = options.steps or (16 if simulated else 100)
    return Plan(
        batch_size=batch_size,
        steps=steps,
        warm_up=max(1, steps // 5),
        accumulate=options.accumulate,
        width=8 if simulated else 64,
        train=batch_size * (2 if simulated else 8),
        test=128 if simulated else 2048,
        seed=options.seed,
    )


def techniques(plan: Plan) -> list[Technique]:
    """Return what is tried, in order."""
    fp16 = Precision("fp16")
    return [
        Technique(name="fp32"),
        Technique(name="cudnn_benchmark", benchmark=True),
        Technique(name="amp", benchmark=True, precision=fp16),
        Technique(name="channels_last", benchmark=True, precision=fp16, channels_last=True),
        Technique(
            name="accumulation",
            benchmark=True,
            precision=fp16,
            channels_last=True,
            parts=plan.accumulate,
        ),
    ]
