# SPDX-License-Identifier: Apache-2.0
"""What `train-cnn` can be told."""

from dataclasses import dataclass
from pathlib import Path

from gpupack_workloads.settings import Options

DATA = ("mnist", "cifar10")


@dataclass(frozen=True, kw_only=True)
class CnnOptions(Options):
    """Arguments; None takes what suits the device.

    Attributes:
        data: whose shape the images have.
        folder: where real ones are; None makes some up.
        batch_size: images per step.
        steps: of each technique; about a fifth of them warm up and are not timed.
        accumulate: parts of a batch, in the technique that adds their gradients up.
    """

    data: str = "cifar10"
    folder: Path | None = None
    batch_size: int | None = None
    steps: int | None = None
    accumulate: int = 4

    @property
    def channels(self) -> int:
        """How many colours a pixel has."""
        return 1 if self.data == "mnist" else 3

    @property
    def edge(self) -> int:
        """An image's rows and columns."""
        return 28 if self.data == "mnist" else 32
