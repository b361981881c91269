# SPDX-License-Identifier: Apache-2.0
"""Tokens of a made-up language: runs in which each token decides the next, from random starts.

A step's batch depends on seed and step only, not on the rank, so that a training goes on
the same with other workers, and a single process sees what all of them saw.
"""

from dataclasses import dataclass

import torch

# A run's first token cannot be guessed: the loss ends near 1/16 of where it starts.
RUN = 16
LARGEST_SEED = 2**31


@dataclass(frozen=True)
class Batch:
    """Tokens [rows, length], and after each of them the one that follows."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def share(self, index: int, count: int) -> "Batch":
        """Return one of equal parts of the rows."""
        rows = self.inputs.shape[0] // count
        mine = slice(index * rows, (index + 1) * rows)
        return Batch(self.inputs[mine], self.targets[mine])

    def parts(self, count: int) -> list["Batch"]:
        """Return all of equal parts of the rows."""
        return [self.share(index, count) for index in range(count)]


class Language:
    """Which token follows which."""

    def __init__(self, *, vocabulary: int, seed: int, device: torch.device) -> None:
        chance = torch.Generator().manual_seed(seed)
        follower = torch.randperm(vocabulary, generator=chance)
        runs = [torch.arange(vocabulary)]
        for _ in range(RUN - 1):
            runs.append(follower[runs[-1]])
        self._runs = torch.stack(runs, dim=1).to(device)
        self._vocabulary, self._seed, self._device = vocabulary, seed, device

    def batch(self, step: int, *, rows: int, length: int) -> Batch:
        """Return a step's tokens."""
        chance = torch.Generator().manual_seed((self._seed * 1_000_003 + step) % LARGEST_SEED)
        runs = length // RUN + 1
        starts = torch.randint(self._vocabulary, (rows, runs), generator=chance)
        tokens = self._runs[starts.to(self._device)].reshape(rows, -1)
        return Batch(tokens[:, :length].contiguous(), tokens[:, 1 : length + 1].contiguous())
