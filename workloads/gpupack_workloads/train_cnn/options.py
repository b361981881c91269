# SPDX-License-Identifier: Apache-2.0
"""Options of `train-cnn`."""

from dataclasses import dataclass
from pathlib import Path

from gpupack_workloads.settings import Options

SYNTHETIC = "synthetic"
SHAPES = ("mnist", "cifar10")
DATASETS = (SYNTHETIC, *SHAPES)
OPTIMIZERS = ("sgd", "momentum", "nesterov", "rmsprop", "adam", "adamw")
EPOCHS = 10


@dataclass(frozen=True, kw_only=True)
class CnnOptions(Options):
    """Arguments; None: defaults for the device or the data.

    Attributes:
        dataset: which images.
        data: where their files are, as torchvision keeps them; None for made-up images.
        shape: data set whose shape the made-up images have.
        checksums: whether files must be the published ones.
        batch_size: images per step and process.
        steps: number of steps of each technique; about a fifth of them warm up and are not timed.
        accumulate: parts of a batch, in the technique that adds their gradients up.
        epochs: how often all images are learnt from; one training then, and no techniques.
        optimizer: of a training by epochs.
        learning_rate: the same.
    """

    dataset: str = SYNTHETIC
    data: Path | None = None
    shape: str = "cifar10"
    checksums: bool = True
    batch_size: int | None = None
    steps: int | None = None
    accumulate: int = 4
    epochs: int | None = None
    optimizer: str = "adam"
    learning_rate: float | None = None

    @property
    def made_up(self) -> bool:
        """Whether there are no real images."""
        return self.dataset == SYNTHETIC

    @property
    def by_epochs(self) -> bool:
        """Whether to train in whole epochs: on request, or with real images and without --steps."""
        return self.epochs is not None or (not self.made_up and self.steps is None)

    @property
    def look(self) -> str:
        """Whose shape the images have."""
        return self.shape if self.made_up else self.dataset

    @property
    def channels(self) -> int:
        """How many colours a pixel has."""
        return 1 if self.look == "mnist" else 3

    @property
    def edge(self) -> int:
        """An image's rows and columns."""
        return 28 if self.look == "mnist" else 32
