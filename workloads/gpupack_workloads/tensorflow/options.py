# SPDX-License-Identifier: Apache-2.0
"""Options of `tensorflow`, and what they lead to."""

from dataclasses import dataclass

from gpupack_workloads.settings import Options
from gpupack_workloads.train_cnn.options import SHAPES

__all__ = ["MAX_IMAGES", "SHAPES", "Plan", "TensorFlowOptions", "plan_for"]

MAX_IMAGES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class TensorFlowOptions(Options):
    """Arguments; None: defaults for the device.

    Attributes:
        shape: data set whose shape the made-up images have.
        images: to learn from, over all workers.
        epochs: how often all images are learnt from.
        batch_size: images per step and replica.
        memory_growth: take a GPU's memory as it is needed, instead of all at once.
        memory_fraction: the part of each GPU's memory, or of the share of it, that TensorFlow
            takes at the most; None: `SHARE_FRACTION` of a share, no limit on a whole GPU.
    """

    shape: str = "mnist"
    images: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    memory_growth: bool = True
    memory_fraction: float | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A training with every default filled in.

    Attributes:
        width: channels of the network's first stage.
        train: images to learn from.
        test: images to be judged by.
    """

    shape: str
    epochs: int
    batch_size: int
    width: int
    train: int
    test: int
    seed: int


def plan_for(options: TensorFlowOptions, *, simulated: bool) -> Plan:
    """Return the options with defaults for GPUs, or for a CPU."""
    return Plan(
        shape=options.shape,
        epochs=options.epochs or (4 if simulated else 8),
        batch_size=options.batch_size or (32 if simulated else 512),
        width=8 if simulated else 64,
        train=options.images or (1024 if simulated else 65_536),
        test=256 if simulated else 2048,
        seed=options.seed,
    )
