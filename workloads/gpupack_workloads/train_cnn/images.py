# SPDX-License-Identifier: Apache-2.0
"""Images with their classes in the host's memory."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CLASSES = 10


@dataclass(frozen=True)
class Images:
    """Pixels [N, C, H, W] from 0 to 255 and classes [N] from 0 to 9."""

    pixels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Images for training and for the test."""

    train: Images
    test: Images
