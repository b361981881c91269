# SPDX-License-Identifier: Apache-2.0
"""The network of `train-cnn`, in Keras: three stages of two convolutions, without normalisation."""

from typing import Any

import keras

from gpupack_workloads.train_cnn.images import CLASSES

STAGES = 3


def network(*, channels: int, edge: int, width: int) -> Any:
    """Return an untrained classifier of images [N, H, W, C]; `width` is the first stage's."""
    stages = [layer for stage in range(STAGES) for layer in _stage(width << stage)]
    return keras.Sequential(
        [
            keras.Input((edge, edge, channels)),
            *stages,
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES),
        ]
    )


def _stage(width: int) -> list[Any]:
    return [*(_convolution(width) for _ in range(2)), keras.layers.MaxPooling2D(2)]


def _convolution(width: int) -> Any:
    return keras.layers.Conv2D(
        width, 3, padding="same", activation="relu", kernel_initializer="he_normal"
    )
