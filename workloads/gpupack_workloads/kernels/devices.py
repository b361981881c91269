# SPDX-License-Identifier: Apache-2.0
"""What of a GPU decides which kernel runs and how large its tiles are; asked once per GPU."""

import functools
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import torch

from gpupack_workloads.kernels.errors import Unsupported

HOPPER = (9, 0)
KIB = 1024


class Tiled(Protocol):
    """How a kernel cuts its work."""

    @property
    def shared_kib(self) -> int:
        """How much shared memory a program takes at most."""


Tiles = TypeVar("Tiles", bound=Tiled)


@functools.cache
def properties(index: int) -> Any:
    """Return what CUDA says of a GPU; asking takes microseconds each time."""
    return torch.cuda.get_device_properties(index)


def properties_of(tensor: torch.Tensor) -> Any:
    """Return the properties of the GPU that holds a tensor."""
    return properties(tensor.device.index)


def is_hopper(tensor: torch.Tensor) -> bool:
    """Return whether a GPU holds a tensor that runs the kernels written for Hopper."""
    if not tensor.is_cuda:
        return False
    found = properties_of(tensor)
    return (found.major, found.minor) == HOPPER


def fastest_that_fits(options: Sequence[Tiles], tensor: torch.Tensor) -> Tiles:
    """Return the first of tiles, the fastest first, for which a GPU has enough shared memory.

    Raises:
        Unsupported: it has too little for any of them.
    """
    found = properties_of(tensor)
    for tiles in options:
        if tiles.shared_kib * KIB <= found.shared_memory_per_block_optin:
            return tiles
    raise Unsupported(
        f"{found.name} gives a program {found.shared_memory_per_block_optin // KIB} KiB of shared"
        f" memory, and this kernel takes {options[-1].shared_kib} KiB at least in {tensor.dtype}"
    )
