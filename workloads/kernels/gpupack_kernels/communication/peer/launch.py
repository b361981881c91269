# SPDX-License-Identifier: Apache-2.0
"""Launches the kernels on the current device; one tensor of each may be another device's."""

import math

import torch

from gpupack_kernels.communication.peer.kernel import (
    copy_kernel,
    modify_kernel,
    ping_kernel,
    put_kernel,
)
from gpupack_kernels.errors import Unsupported

BYTES_TILE = 8192
WORDS_TILE = 2048
WARPS = 8
MAX_POLLS = 2**25
PUT_PROGRAMS = 528
"""Four for every multiprocessor of an H100: more would not all run, and wait for those that do."""


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


class Puts:
    """Puts words of 8 bytes into a peer's memory with a signal, and waits for the peer's puts.

    All ranks must make the same calls with the same sizes in the same order, on one stream each.

    Args:
        their_signals: PUT_PROGRAMS 32-bit numbers in the memory of the peer that is put to, zero at
            the start.
        my_signals: as many in ours, which another peer (or the same one) sets.
    """

    def __init__(self, their_signals: torch.Tensor, my_signals: torch.Tensor) -> None:
        self._theirs, self._mine = their_signals, my_signals
        self._calls = torch.zeros_like(my_signals)
        self._missed = torch.zeros(1, dtype=torch.int32, device=my_signals.device)

    def put(self, theirs: torch.Tensor, mine: torch.Tensor) -> None:
        """Write our words to theirs; when it ends, what was put into our memory has arrived.

        Raises:
            Unsupported: types or sizes do not fit.
        """
        _require(theirs, mine, torch.int64)
        grid = (min(PUT_PROGRAMS, math.ceil(mine.numel() / WORDS_TILE)),)
        signals = (self._theirs, self._mine, self._calls, self._missed)
        put_kernel[grid](
            mine, theirs, *signals, mine.numel(), MAX_POLLS, TILE=WORDS_TILE, num_warps=WARPS
        )

    def missed(self) -> int:
        """Return how many signals did not come."""
        return int(self._missed.item())


def ping(
    mine: torch.Tensor, theirs: torch.Tensor, done: torch.Tensor, *, rounds: int, leader: bool
) -> None:
    """Bounce a number between two flags, both 0 at the start; the other side runs it too."""
    ping_kernel[(1,)](mine, theirs, done, rounds, MAX_POLLS, LEADER=leader, num_warps=1)


def _require(one: torch.Tensor, other: torch.Tensor, dtype: torch.dtype) -> None:
    if one.dtype != dtype or other.dtype != dtype:
        raise Unsupported(f"the buffers are of {one.dtype} and {other.dtype}, not of {dtype}")
    if one.numel() != other.numel() or not one.numel():
        raise Unsupported(f"cannot copy {other.numel()} elements to {one.numel()}")
    if not (one.is_contiguous() and other.is_contiguous()):
        raise Unsupported("both buffers must be contiguous")
