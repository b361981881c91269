# SPDX-License-Identifier: Apache-2.0
"""Patterns that the memory test writes.

A pattern gives the same words for the same place each time, so that what was read back can be
compared with a second copy of the pattern on the device.

Each finds other faults. Its own address in every word: cells that answer to two addresses. Random
words: cells that depend on their neighbours. A single one among zeros, walking through every bit of
every word, and a single zero among ones: bits that stick, and lines that touch. The inverse of
each: cells that can only be one of the two.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from gpupack_workloads.seeds import generator_seed

WORD_BITS = 64
LOWEST_WORD = -(2**63)
SEED_STEP = 1_000_003


class Pattern(Protocol):
    """A pattern: words by position."""

    @property
    def name(self) -> str:
        """What it is called in a finding."""

    def fill(self, out: torch.Tensor, first: int) -> None:
        """Write the words of the places from `first` on; `out` is int64, a multiple of 64 long."""


@dataclass(frozen=True)
class Address:
    """Pattern with its own position in each word."""

    name: str = "address"

    def fill(self, out: torch.Tensor, first: int) -> None:
        """Write the places."""
        torch.arange(first, first + out.numel(), out=out)


@dataclass(frozen=True)
class Random:
    """Random words; seed and position reproduce them, if the blocks are the same."""

    seed: int

    @property
    def name(self) -> str:
        """Return the name with the seed."""
        return f"random, seed {self.seed}"

    def fill(self, out: torch.Tensor, first: int) -> None:
        """Draw the words."""
        chance = torch.Generator(out.device).manual_seed(
            generator_seed(self.seed * SEED_STEP + first)
        )
        out.random_(LOWEST_WORD, None, generator=chance)


@dataclass(frozen=True)
class Walking:
    """One set bit in each word: the next bit in the next word, and in the next step."""

    step: int

    @property
    def name(self) -> str:
        """Return the name with the step."""
        return f"walking one, step {self.step}"

    def fill(self, out: torch.Tensor, first: int) -> None:
        """Write the bits; places are counted in 64s, so `first` does not matter."""
        del first
        bits = (torch.arange(WORD_BITS, device=out.device) + self.step) % WORD_BITS
        out.view(-1, WORD_BITS).copy_(torch.ones_like(bits) << bits)


@dataclass(frozen=True)
class Inverted:
    """Another pattern with all bits inverted."""

    of: Pattern

    @property
    def name(self) -> str:
        """Return the name of the inverted pattern."""
        return f"inverted {self.of.name}"

    def fill(self, out: torch.Tensor, first: int) -> None:
        """Write the other pattern and turn it round."""
        self.of.fill(out, first)
        out.bitwise_not_()


def sequence(seed: int) -> Iterator[Pattern]:
    """Return patterns without end, each followed by its inverse, the most telling first."""
    for lap in itertools.count():
        plain: list[Pattern] = [Address(), Random(seed + lap)]
        plain += [Walking(step) for step in range(WORD_BITS)]
        for pattern in plain:
            yield pattern
            yield Inverted(pattern)
