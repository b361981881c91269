# SPDX-License-Identifier: Apache-2.0
"""Sequences of different lengths, and the sizes to compute on a kind of device."""

import random
from dataclasses import dataclass

import torch

from gpupack_workloads.attention.options import PAGED, AttentionOptions
from gpupack_workloads.attention.plan import BYTES_PER_KEY_ELEMENT, BYTES_PER_QUERY_ELEMENT
from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.results import Scalar


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """Default sizes."""

    sequences: int
    longest: int
    heads: int
    kv_heads: int | None


DEFAULTS = {
    # layout is PAGED, there is a GPU
    (False, True): Defaults(sequences=16, longest=4096, heads=16, kv_heads=None),
    (False, False): Defaults(sequences=3, longest=40, heads=2, kv_heads=None),
    (True, True): Defaults(sequences=32, longest=8192, heads=32, kv_heads=8),
    (True, False): Defaults(sequences=3, longest=150, heads=2, kv_heads=1),
}


@dataclass(frozen=True, kw_only=True)
class RaggedPlan:
    """Lengths, shape, type and repetitions.

    Attributes:
        lengths: lengths of the sequences; at least one has the requested length.
        page_tokens: positions of a page, where there are pages.
    """

    lengths: tuple[int, ...]
    heads: int
    kv_heads: int
    dimension: int
    dtype: torch.dtype
    page_tokens: int
    repeats: int
    rounds: int
    warm_up: int

    @property
    def tokens(self) -> int:
        """Of all sequences together."""
        return sum(self.lengths)

    @property
    def squares(self) -> int:
        """Scores of a head, over all sequences."""
        return sum(length**2 for length in self.lengths)

    @property
    def needed_bytes(self) -> int:
        """About how much memory the timed problem, what rivals leave and the check need."""
        per_token = self.heads * BYTES_PER_QUERY_ELEMENT + self.kv_heads * BYTES_PER_KEY_ELEMENT
        scores = 12 * 8 * max(self.lengths) * min(max(self.lengths), 2048)
        return self.tokens * self.dimension * per_token + scores

    @property
    def metrics(self) -> dict[str, Scalar]:
        """Lengths and their number, as metrics of the result."""
        return {"size": max(self.lengths), "batch": len(self.lengths), "tokens": self.tokens}


def ragged_plan_for(device: Device, options: AttentionOptions) -> RaggedPlan:
    """Return sizes that take a second or so on the device.

    Raises:
        BadArgument: the key heads do not divide the heads.
    """
    gpu = not device.simulated
    usual = DEFAULTS[options.layout == PAGED, gpu]
    heads = options.heads or usual.heads
    kv_heads = options.kv_heads or usual.kv_heads or heads
    if heads % kv_heads:
        raise BadArgument(f"{heads} heads cannot share {kv_heads} key heads evenly")
    return RaggedPlan(
        lengths=lengths_of(
            options.batch or usual.sequences, options.size or usual.longest, seed=options.seed
        ),
        heads=heads,
        kv_heads=kv_heads,
        dimension=options.dimension or (128 if gpu else 64),
        dtype=getattr(torch, options.dtype) if gpu else torch.float32,
        page_tokens=options.page_tokens,
        repeats=5 if gpu else 1,
        rounds=9 if gpu else 1,
        warm_up=2 if gpu else 0,
    )


def lengths_of(sequences: int, longest: int, *, seed: int) -> tuple[int, ...]:
    """Return so many lengths, as likely to be any up to the longest, and the first the longest."""
    chance = random.Random(seed)  # noqa: S311  no secret
    return (longest, *(chance.randint(1, longest) for _ in range(sequences - 1)))
