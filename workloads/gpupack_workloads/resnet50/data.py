# SPDX-License-Identifier: Apache-2.0
"""Images like ImageNet's in shape, and learnable: a class has a colour, under noise.

They stand ready on the device in the type that the network computes in, as a loader that keeps up
would leave them; no loader is measured.
"""

import torch

from gpupack_workloads.training.steps import Batch

# Few, so that a step shows each of them often and the loss falls within a dozen of steps.
CLASSES_SHOWN = 8
CHANNELS = 3


def images(
    *,
    count: int,
    size: int,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
    channels_last: bool,
) -> Batch:
    """Return one batch: images [N, C, H, W] and their classes [N]; one seed gives one batch."""
    chance = torch.Generator(device).manual_seed(seed)
    labels = torch.randint(CLASSES_SHOWN, (count,), generator=chance, device=device)
    pixels = torch.randn((count, CHANNELS, size, size), generator=chance, device=device)
    pixels += colours(device)[labels][:, :, None, None]
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return pixels.to(dtype).contiguous(memory_format=layout), labels


def colours(device: torch.device) -> torch.Tensor:
    """Return each class's mean colour [class, channel]: a corner of a cube."""
    corners = torch.arange(CLASSES_SHOWN, device=device)
    bits = torch.stack([corners & 1, corners >> 1 & 1, corners >> 2 & 1], dim=1)
    return bits.float() * 2 - 1
