# SPDX-License-Identifier: Apache-2.0
"""Three stages of two convolutions each, without normalisation.

Over a batch it would make the gradient of a batch another than the mean of its parts' gradients,
which accumulation is checked against. Over groups of channels it would take most of the time, and
none of the techniques tried here makes that faster.
"""

import torch
from torch import nn

from gpupack_workloads.train_cnn.images import CLASSES

STAGES = 3


def network(*, channels: int, edge: int, width: int) -> nn.Module:
    """Return a classifier of images; `width` is the first stage's number of channels."""
    layers: list[nn.Module] = []
    for stage in range(STAGES):
        outer = width << stage
        layers += [*unit(channels, outer), *unit(outer, outer), nn.MaxPool2d(2)]
        channels = outer
    # Not averaged over the image: positions distinguish classes within few steps.
    pixels = (edge >> STAGES) ** 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(outer * pixels, CLASSES))


def seeded_network(*, channels: int, edge: int, width: int, seed: int) -> nn.Module:
    """Return an untrained network on the host; one seed gives one network."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network(channels=channels, edge=edge, width=width)


def unit(channels: int, outer: int) -> list[nn.Module]:
    """Return a convolution that keeps the variance of its inputs, and rectification."""
    convolution = nn.Conv2d(channels, outer, 3, padding=1)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    nn.init.zeros_(convolution.bias)
    return [convolution, nn.ReLU()]
