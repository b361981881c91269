# SPDX-License-Identifier: Apache-2.0
"""Launches the kernels on the current device; one tensor of each may be another device's."""

import math

import torch

from gpupack_workloads.kernels.errors import Unsupported
from gpupack_workloads.kernels.peer.kernel import copy_kernel, modify_kernel, ping_kernel

BYTES_TILE = 8192
WORDS_TILE = 2048
WARPS = 8
PATIENCE = 2**25


def modify(seen: torch.Tensor, theirs: torch.Tensor, *, key: int) -> None:
    """Copy their bytes to `seen`, and flip the bits of `key` in each of theirs.

    Raises:
        Unsupported: types or sizes do not fit.
    """
    _require(seen, theirs, torch.uint8)
    grid = (math.ceil(seen.numel() / BYTES_TILE),)
    modify_kernel[grid](seen, theirs, seen.numel(), KEY=key, TILE=BYTES_TILE, num_warps=WARPS)


def copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy words of 8 bytes by loads and stores.

    Raises:
        Unsupported: types or sizes do not fit.
    """
    _require(target, source, torch.int64)
    grid = (math.ceil(target.numel() / WORDS_TILE),)
    copy_kernel[grid](target, source, target.numel(), TILE=WORDS_TILE, num_warps=WARPS)


def ping(
    mine: torch.Tensor, theirs: torch.Tensor, done: torch.Tensor, *, rounds: int, leader: bool
) -> None:
    """Bounce a number between two flags, both 0 at the start; the other side runs it too."""
    ping_kernel[(1,)](mine, theirs, done, rounds, PATIENCE, LEADER=leader, num_warps=1)


def _require(one: torch.Tensor, other: torch.Tensor, dtype: torch.dtype) -> None:
    if one.dtype != dtype or other.dtype != dtype:
        raise Unsupported(f"the buffers are of {one.dtype} and {other.dtype}, not of {dtype}")
    if one.numel() != other.numel() or not one.numel():
        raise Unsupported(f"cannot copy {other.numel()} elements to {one.numel()}")
    if not (one.is_contiguous() and other.is_contiguous()):
        raise Unsupported("both buffers must be contiguous")
