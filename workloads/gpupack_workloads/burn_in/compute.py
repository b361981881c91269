# SPDX-License-Identifier: Apache-2.0
"""Repeats one product of two matrices: it must be right, with the same bits each time.

Right: by checksums of all its elements, computed in 64 bits, by another path of the hardware
(reference/freivalds). In bf16 the numbers are random, which makes the GPU work hardest; the
difference must then be explained by rounding. In fp16 the numbers are whole and so small that every
sum is exact; so must be the product.

The same each time: of every product its bits, as 32-bit numbers, are added up; the sum must be that
of the first product. Of each batch, one product is compared with the first bit by bit.
"""

from collections.abc import Callable
from functools import partial

import torch

from gpupack_workloads.burn_in.checks import ComputeReport
from gpupack_workloads.reference import freivalds
from gpupack_workloads.reference.agreement import Agreement
from gpupack_workloads.reference.freivalds import Strips
from gpupack_workloads.timing import seconds_per_call

Multiply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]

TRIED = 4
"""Products of which the time of one is taken."""
LARGEST_WHOLE = 2
"""In fp16 sums of up to 2048 are exact; those of 8192 products of such numbers stay far below."""


class Products:
    """The product of one pair of matrices of one type, computed in batches.

    Args:
        device: where.
        dtype: type of the matrices; float16 takes whole numbers.
        size: rows and columns.
        seed: seed of the numbers.
        multiply: writes A @ B into its third argument.
    """

    def __init__(
        self, device: torch.device, dtype: torch.dtype, *, size: int, seed: int, multiply: Multiply
    ) -> None:
        chance = torch.Generator(device).manual_seed(seed)
        self._a, self._b = (_matrix(size, dtype, chance) for _ in range(2))
        self._first, self._c = (torch.empty_like(self._a) for _ in range(2))
        self._multiply = multiply
        multiply(self._a, self._b, self._first)
        self._sum = _bits(self._first).sum(dtype=torch.int64)
        self._residual = check_product(self._a, self._b, self._first, chance)
        self._tflops: list[float] = []
        self._products = 1
        self._wrong = int(not self._residual.holds)
        self._detail = "" if self._residual.holds else f"the first product is off: {self._residual}"

    def batch(self, count: int, *, while_busy: Callable[[], None]) -> None:
        """Compute `count` products and compare each with the first.

        `while_busy` is called while the device computes, for readings under load.
        """
        seconds = self._compute(count, while_busy)
        self._tflops.append(2 * self._c.shape[0] ** 3 * count / seconds / 1e12)

    def seconds_each(self) -> float:
        """Return about how long one product takes; these count as products, not for the speed."""
        self._compute(TRIED, lambda: None)
        return self._compute(TRIED, lambda: None) / TRIED

    def report(self) -> ComputeReport:
        """Return what became of all products so far."""
        return ComputeReport(
            products=self._products,
            wrong_products=self._wrong,
            residual=self._residual.error,
            bound=self._residual.bound,
            tflops=tuple(self._tflops),
            detail=self._detail,
        )

    def _compute(self, count: int, while_busy: Callable[[], None]) -> float:
        """Compute and compare; return the seconds."""
        sums = torch.empty(count, dtype=torch.int64, device=self._c.device)
        seconds = seconds_per_call(
            partial(self._fill, sums, while_busy), device=self._c.device, repeats=1, warm_up=0
        )
        wrong = int(torch.count_nonzero(sums != self._sum).item())
        if not wrong and not torch.equal(_bits(self._c), _bits(self._first)):
            wrong = 1
        if wrong and not self._detail:
            self._detail = self._describe(wrong, count)
        self._products += count
        self._wrong += wrong
        return seconds

    def _fill(self, sums: torch.Tensor, while_busy: Callable[[], None]) -> None:
        for index in range(sums.numel()):
            self._multiply(self._a, self._b, self._c)
            torch.sum(_bits(self._c), dim=0, dtype=torch.int64, out=sums[index])
        while_busy()

    def _describe(self, wrong: int, count: int) -> str:
        different = (_bits(self._c) != _bits(self._first)).nonzero()
        where = f", the last one in {different.shape[0]} words" if different.shape[0] else ""
        return f"{wrong} of {count} products differ from the first{where}"


def check_product(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, chance: torch.Generator
) -> Agreement:
    """Compare C with A B by checksums; whole numbers leave no rounding at all."""
    columns = c.shape[1]
    strips = Strips(freivalds.random_signs(columns, chance), freivalds.strip_width(columns))
    expected = freivalds.checksums_of_product(a, b, strips)
    return freivalds.compare(c, expected, strips, roundings=int(c.dtype != torch.float16))


def _bits(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.view(-1).view(torch.int32)


def _matrix(size: int, dtype: torch.dtype, chance: torch.Generator) -> torch.Tensor:
    shape = (size, size)
    if dtype != torch.float16:
        return torch.randn(shape, generator=chance, device=chance.device, dtype=dtype)
    whole = torch.randint(
        -LARGEST_WHOLE, LARGEST_WHOLE + 1, shape, generator=chance, device=chance.device
    )
    return whole.to(dtype)
