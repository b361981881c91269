# SPDX-License-Identifier: Apache-2.0
"""Launch plans of products, cached by the layout of their operands.

To choose tiles and to find out how operands lie takes the host as long as Triton takes to launch. A
network multiplies the same shapes in every step, so that it is looked up from the second time on.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch

from gpupack_kernels.operators.gemm.hopper.compiled import Arguments, CompiledKernels, Grid
from gpupack_kernels.operators.gemm.tuning import MAP_BYTES
from gpupack_kernels.tensor_maps import TensorMap

# More than a network has; each takes a kilobyte.
MAX_PLANS = 1024


@dataclass(frozen=True)
class Plan:
    """A launch without the operands' addresses; all three are read and written in place.

    Attributes:
        kernels: compiled.
        key: key of the kernel.
        grid: number of programs.
        maps: shape, strides, block and layout of A, B and C.
        rest: arguments behind the maps; no tensors.
    """

    kernels: CompiledKernels
    key: Hashable
    grid: Grid
    maps: tuple[tuple[Any, ...], ...]
    rest: Arguments

    def launch(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Write A @ B to C, on the current device."""
        described = [TensorMap(x, *how) for x, how in zip((a, b, c), self.maps, strict=True)]
        self.kernels.run(self.key, self.grid, (*described, *self.rest))


def how(described: TensorMap) -> tuple[Any, ...]:
    """Return the content of a map without the address."""
    return described.shape, described.strides, described.block_shape, described.layout


def kind_of(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Hashable:
    """Return what a launch depends on: the GPU, types, shapes, strides and alignments."""
    return (
        a.device.index,
        *(a.dtype, a.shape, a.stride(), a.data_ptr() % MAP_BYTES),
        *(b.dtype, b.shape, b.stride(), b.data_ptr() % MAP_BYTES),
        *(c.dtype, c.shape, c.stride(), c.data_ptr() % MAP_BYTES),
    )


class Plans:
    """A cache of plans by key; when it is full, it is emptied."""

    def __init__(self, most: int = MAX_PLANS) -> None:
        self._most = most
        self._plans: dict[Hashable, Plan] = {}

    def find(self, kind: Hashable) -> Plan | None:
        """Return the plan of a kind."""
        return self._plans.get(kind)

    def keep(self, kind: Hashable, plan: Plan) -> None:
        """Keep a plan."""
        if len(self._plans) >= self._most:
            self._plans.clear()
        self._plans[kind] = plan


PLANS = Plans()
