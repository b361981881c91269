# SPDX-License-Identifier: Apache-2.0
"""Bytes that depend on position and seed, so that a misplaced byte is found."""

import torch

# 251 is the largest prime below 256: the pattern does not repeat with any power of two.
MODULUS = 251
SEED_STEP = 31
PIECE = 2**26
# What a reader flips in every byte, so that its writing shows.
KEY = 0xA5


def write(target: torch.Tensor, seed: int) -> None:
    """Fill a buffer of bytes."""
    for first in range(0, target.numel(), PIECE):
        piece = target[first : first + PIECE]
        piece.copy_(expected(first, piece.numel(), seed, target.device))


def count_wrong(found: torch.Tensor, seed: int, *, first: int = 0, key: int = 0) -> int:
    """Return how many bytes differ from the pattern from `first` on, `key`'s bits flipped."""
    wrong = 0
    for start in range(0, found.numel(), PIECE):
        piece = found[start : start + PIECE]
        right = expected(first + start, piece.numel(), seed, found.device) ^ key
        wrong += int((piece != right).sum().item())
    return wrong


def expected(first: int, count: int, seed: int, device: torch.device) -> torch.Tensor:
    """Return the pattern at positions [first, first + count)."""
    start = (first + SEED_STEP * seed) % MODULUS
    positions = torch.arange(start, start + count, device=device, dtype=torch.int32)
    return (positions % MODULUS).to(torch.uint8)
