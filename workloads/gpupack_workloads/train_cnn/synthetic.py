# SPDX-License-Identifier: Apache-2.0
"""Made-up images of ten classes: each class has a pattern, with weaker noise."""

import numpy as np

from gpupack_workloads.train_cnn.images import CLASSES, Images, Split
from gpupack_workloads.train_cnn.options import CnnOptions

COARSE = 4
CONTRAST = 50
NOISE = 25
GREY = 128


def make(options: CnnOptions, *, train: int, test: int) -> Split:
    """Return images for training and others of the same classes for testing."""
    chance = np.random.default_rng(options.seed)
    coarse = chance.standard_normal((CLASSES, options.channels, COARSE, COARSE))
    repeats = -(-options.edge // COARSE)
    fine = coarse.repeat(repeats, axis=2).repeat(repeats, axis=3)
    patterns = fine[:, :, : options.edge, : options.edge]
    return Split(train=draw(patterns, train, chance), test=draw(patterns, test, chance))


def draw(patterns: np.ndarray, count: int, chance: np.random.Generator) -> Images:
    """Return images of random classes, as bytes."""
    labels = chance.integers(0, CLASSES, count)
    noise = chance.standard_normal((count, *patterns.shape[1:]), dtype=np.float32)
    pixels = GREY + CONTRAST * patterns[labels] + NOISE * noise
    return Images(pixels=np.clip(pixels, 0, 255).astype(np.uint8), labels=labels)
