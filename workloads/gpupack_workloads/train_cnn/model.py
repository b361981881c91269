# SPDX-License-Identifier: Apache-2.0
"""Three stages of two convolutions each.

Normalisation is over groups of channels of one image, not over the batch: then a batch's gradient
is the mean of its parts' gradients, and accumulation can be checked exactly.
"""

from torch import nn

CLASSES = 10
STAGES = 3
GROUPS = 8


def network(*, channels: int, edge: int, width: int) -> nn.Module:
    """Return a classifier of images; `width` is the first stage's number of channels."""
    layers: list[nn.Module] = []
    for stage in range(STAGES):
        outer = width << stage
        layers += [*unit(channels, outer), *unit(outer, outer), nn.MaxPool2d(2)]
        channels = outer
    # Not averaged over the image: where something is tells classes apart within few steps.
    pixels = (edge >> STAGES) ** 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(outer * pixels, CLASSES))


def unit(channels: int, outer: int) -> list[nn.Module]:
    """Return a convolution with normalisation and rectification."""
    return [
        nn.Conv2d(channels, outer, 3, padding=1, bias=False),
        nn.GroupNorm(GROUPS, outer),
        nn.ReLU(),
    ]
