# SPDX-License-Identifier: Apache-2.0
"""Makes the GPU of an operand current for a launch, and reads the properties that choose tiles.

A new thread has no CUDA context, and torch makes a device current without one where the thread's
device has the right number already. A kernel's launch binds one, but a tensor map is made before
that: the driver then answers "invalid device context".
"""

import functools
import threading
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import torch

from gpupack_kernels.errors import Unsupported

HOPPER = (9, 0)
KIB = 1024


class Tiled(Protocol):
    """Tile sizes of a kernel."""

    @property
    def shared_kib(self) -> int:
        """How much shared memory a program takes at most."""


Tiles = TypeVar("Tiles", bound=Tiled)


class _Thread(threading.local):
    """State of this thread.

    Attributes:
        bound: numbers of the GPUs whose context it has bound.
    """

    def __init__(self) -> None:
        self.bound: set[int] = set()


_THREAD = _Thread()


def device_of(tensor: torch.Tensor) -> torch.cuda.device_of:
    """Return a context manager in which a tensor's GPU is current, with a CUDA context."""
    if tensor.is_cuda:
        bind_context(tensor.get_device())
    return torch.cuda.device_of(tensor)


def bind_context(index: int) -> None:
    """Bind a GPU's primary context to this thread, once: the call takes the driver microseconds."""
    if index not in _THREAD.bound:
        # A call of CUDA's runtime that needs a context binds one; a capture allows this one.
        torch.cuda.mem_get_info(index)
        _THREAD.bound.add(index)


@functools.cache
def properties(index: int) -> Any:
    """Return CUDA's properties of a GPU; the call takes microseconds."""
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
