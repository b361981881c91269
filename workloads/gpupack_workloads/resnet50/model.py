# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 v1.5 (He et al., 2015, with strides in the 3 x 3 convolutions): 25,557,032 parameters.

Defined here: no machine needs torchvision for 60 lines, and the stem can be folded.

Shape legend: N images, C channels, H and W pixels.
"""

from typing import cast

import torch
from torch import nn
from torch.nn import functional

CLASSES = 1000
PARAMETERS = 25_557_032
STEM_CHANNELS = 64
EXPANSION = 4
FOLDED_CHANNELS = 16
# (inner channels, blocks, stride) of each stage.
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


class Bottleneck(nn.Module):
    """1 x 1 down, 3 x 3, 1 x 1 up, around them the identity or a projection."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        outer = inner * EXPANSION
        self.reduce = unit(channels, inner, kernel=1)
        self.spatial = unit(inner, inner, kernel=3, stride=stride)
        self.expand = unit(inner, outer, kernel=1)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != outer:
            self.shortcut = unit(channels, outer, kernel=1, stride=stride)

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:  # noqa: N803  shape suffix
        """Return the block's output."""
        inner = torch.relu(self.spatial(torch.relu(self.reduce(x_NCHW))))
        return torch.relu(self.expand(inner) + self.shortcut(x_NCHW))


def unit(channels: int, outer: int, *, kernel: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution with batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(channels, outer, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outer),
    )


class Stem(nn.Module):
    """The first convolution with its normalisation, folded if its images' edges are even.

    Three channels leave tensor cores idle. Blocks of 2 x 2 pixels taken as one pixel of 12 channels
    turn the 7 x 7 convolution of stride 2 into a 4 x 4 one of stride 1 whose kernel is the same
    numbers, one row and column of zeros before them (as MLPerf's entries do it). The parameter
    keeps its shape, so a checkpoint serves both. Zeros make it 16 channels: aligned loads.
    """

    def __init__(self, *, folded: bool) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, STEM_CHANNELS, 7, 2, padding=3, bias=False)
        self.normalisation = nn.BatchNorm2d(STEM_CHANNELS)
        self.folded = folded

    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:  # noqa: N803  shape suffix
        """Return 64 channels at half the resolution."""
        weight = self.convolution.weight
        if self.folded and images_NCHW.shape[2] % 2 == images_NCHW.shape[3] % 2 == 0:
            features = folded_convolution(images_NCHW, weight)
        else:
            features = self.convolution(images_NCHW)
        return torch.relu(self.normalisation(features))


def folded_convolution(
    images_NCHW: torch.Tensor,  # noqa: N803  shape suffix
    weight: torch.Tensor,
) -> torch.Tensor:
    """Return the 7 x 7 convolution of stride 2 with a border of 3, computed on 2 x 2 blocks.

    An output pixel i sees input pixels 2i-3 ... 2i+3, which lie in blocks i-2 ... i+1; hence the
    zero before the kernel and the border of two blocks before, one after.
    """
    blocks = functional.pixel_unshuffle(images_NCHW, 2)
    kernel = functional.pixel_unshuffle(functional.pad(weight, (1, 0, 1, 0)), 2)
    blocks = functional.pad(blocks, (2, 1, 2, 1, 0, FOLDED_CHANNELS - blocks.shape[1]))
    kernel = functional.pad(kernel, (0, 0, 0, 0, 0, FOLDED_CHANNELS - kernel.shape[1]))
    return functional.conv2d(
        blocks.contiguous(memory_format=torch.channels_last),
        kernel.contiguous(memory_format=torch.channels_last),
    )


class ResNet50(nn.Module):
    """Images of any size from 32 x 32 to logits of 1000 classes."""

    def __init__(self, *, folded_stem: bool = False) -> None:
        super().__init__()
        self.stem = Stem(folded=folded_stem)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stages = nn.Sequential(*stages())
        self.head = nn.Linear(STAGES[-1][0] * EXPANSION, CLASSES)
        self.apply(initialise)

    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:  # noqa: N803  shape suffix
        """Return logits [N, 1000]."""
        features = self.stages(self.pool(self.stem(images_NCHW)))
        return cast("torch.Tensor", self.head(features.mean((2, 3))))


def stages() -> list[nn.Module]:
    """Return the four stages' blocks in a row."""
    blocks: list[nn.Module] = []
    channels = STEM_CHANNELS
    for inner, count, stride in STAGES:
        for index in range(count):
            blocks.append(Bottleneck(channels, inner, stride if index == 0 else 1))
            channels = inner * EXPANSION
    return blocks


def initialise(module: nn.Module) -> None:
    """Start convolutions as He et al. do, and each block as the identity.

    The last normalisation of a block starts at zero (Goyal et al., 2017): large batches start
    without a first phase of divergence.
    """
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, Bottleneck):
        nn.init.zeros_(cast("nn.BatchNorm2d", module.expand[1]).weight)


def set_branches(network: nn.Module, factor: float) -> None:
    """Let each block's last normalisation multiply by a factor; 0 makes it the identity."""
    for module in network.modules():
        if isinstance(module, Bottleneck):
            nn.init.constant_(cast("nn.BatchNorm2d", module.expand[1]).weight, factor)
