# SPDX-License-Identifier: Apache-2.0
"""Sizes to compute on a kind of device."""

from dataclasses import dataclass
from typing import Protocol

import torch

from gpupack_workloads.attention.options import AttentionOptions
from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument
from gpupack_workloads.results import Scalar

# A backward pass is five products where a forward pass is two.
BACKWARD_PER_FORWARD = 2.5
# Q, O, their gradients, dQ in 32 bits, what a rival needs and what each rival left; K, V and their
# gradients, of each rival too; and the reference's scores of some rows in 64 bits, a dozen times.
BYTES_PER_QUERY_ELEMENT = 48
BYTES_PER_KEY_ELEMENT = 36
BYTES_PER_KEY_CHECKED = 12 * 2048 * 8


class Timed(Protocol):
    """Part of any layout's plan that decides how it is timed and reported."""

    @property
    def heads(self) -> int:
        """Return the number of query heads."""

    @property
    def kv_heads(self) -> int:
        """Return how many heads keys and values have."""

    @property
    def dimension(self) -> int:
        """Return numbers of a head."""

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of all operands."""

    @property
    def repeats(self) -> int:
        """Return calls that are timed at once."""

    @property
    def rounds(self) -> int:
        """Return in how many rounds rivals take turns."""

    @property
    def warm_up(self) -> int:
        """Return calls before."""

    @property
    def squares(self) -> int:
        """Return the number of scores of a head, over all sequences."""

    @property
    def metrics(self) -> dict[str, Scalar]:
        """Return lengths and their number, as metrics of the result."""


def flop_of(plan: Timed, *, causal: bool, backward: bool) -> float:
    """Return the operations of a pass without masked ones, as is usual for attention."""
    forward = 4 * plan.heads * plan.squares * plan.dimension
    return forward * (0.5 if causal else 1.0) * (BACKWARD_PER_FORWARD if backward else 1.0)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Shape, type and repetitions of problems of one length.

    Attributes:
        ragged: (heads, kv_heads, rows, keys) of small problems that try the edges. Types and
            dimensions other than the timed ones are left to the tests: kernels of each have to be
            compiled, and a first run should not be slow.
    """

    batch: int
    heads: int
    kv_heads: int
    length: int
    dimension: int
    dtype: torch.dtype
    ragged: tuple[tuple[int, int, int, int], ...]
    repeats: int
    rounds: int
    warm_up: int

    @property
    def needed_bytes(self) -> int:
        """About how much memory the timed problem and its check need."""
        elements = self.batch * self.length * self.dimension
        per_head = self.heads * BYTES_PER_QUERY_ELEMENT + self.kv_heads * BYTES_PER_KEY_ELEMENT
        return elements * per_head + self.length * BYTES_PER_KEY_CHECKED

    @property
    def plain_bytes(self) -> int:
        """How much torch's plain attention needs at least: scores and their softmax."""
        return 2 * self.batch * self.heads * self.length**2 * int(self.dtype.itemsize)

    @property
    def squares(self) -> int:
        """Scores of a head, over all problems."""
        return self.batch * self.length**2

    @property
    def metrics(self) -> dict[str, Scalar]:
        """The shape, as metrics of the result."""
        return {"size": self.length, "batch": self.batch}


def plan_for(device: Device, options: AttentionOptions) -> Plan:
    """Return sizes that take a second or so on the device.

    Raises:
        BadArgument: the key heads do not divide the heads.
    """
    gpu = not device.simulated
    heads = options.heads or (16 if gpu else 2)
    kv_heads = options.kv_heads or heads
    if heads % kv_heads:
        raise BadArgument(f"{heads} heads cannot share {kv_heads} key heads evenly")
    return Plan(
        batch=options.batch or 1,
        heads=heads,
        kv_heads=kv_heads,
        length=options.size or (16384 if gpu else 96),
        dimension=options.dimension or (128 if gpu else 64),
        dtype=getattr(torch, options.dtype) if gpu else torch.float32,
        ragged=((4, 2, 300, 300), (3, 1, 70, 333)) if gpu else ((2, 1, 40, 40),),
        repeats=5 if gpu else 1,
        rounds=9 if gpu else 1,
        warm_up=2 if gpu else 0,
    )
