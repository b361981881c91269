# SPDX-License-Identifier: Apache-2.0
"""An independent product in NumPy, with error bounds.

Computing with 32-bit accumulation and rounding once to the result's type, an element c of A @ B
differs from the exact one by at most L sqrt(K) u |a|.|b| + v |c|, where u = 2^-24 is the rounding
unit of the accumulation, v that of the result's type, and |a|.|b| the same product of absolute
values. That is the probabilistic bound (Higham and Mary, 2019), which fails for one element in
10^13 at L = 8. The certain bound, with K instead of L sqrt(K), is so wide that inputs cut to TF32
would pass. The reference accumulates in 64 bits, so its own error does not count.

Hopper's tensor cores sum 8-bit operands differently: 32 products at a time are aligned with the sum
so far and cut to 13 bits after the point. The sum so far is about the root of the sum of squares of
its products where signs are mixed, so K / 32 + 1 cuts make an error of at most
4 L (K / 32 + 1) 2^-13 sqrt(a^2.b^2), with L for the largest of many.

At K = 8192 that is as much as an element itself, so that products left out would not show. Many
elements together tell more: over 128 neighbours in a row the root of the mean square error is below
2 (K / 32 + 1) 2^-13 times that of sqrt(a^2.b^2), and what the result's rounding adds. On an H200
no single element is further off than 1.3 (K / 32 + 1) 2^-13 sqrt(a^2.b^2), at K = 4096 and 8192.
Leaving out 128 of 8192 products makes nearly twice the bound.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.reference.agreement import (
    ACCUMULATION_UNIT,
    RESULT_UNITS,
    SAFETY,
    SUBNORMAL_UNITS,
    Agreement,
    closest,
    worst,
)

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

Matrix = npt.NDArray[np.float64]
Product = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]

# Every tile of 64 rows has at least one that is checked, so a tile that was skipped or computed
# twice is seen.
ROW_STEP = 64

# What the tensor cores add at a time, and to how many bits, where operands have 8.
NARROW_STEP = 32
NARROW_UNIT = 2.0**-13
# Of a single element, and of neighbours together: no more than a tile has in a row.
NARROW_CUTS = 4 * SAFETY
NARROW_MEAN_CUTS = 2
NEIGHBOURS = 128


def compare(*, a: Matrix, b: Matrix, c: Matrix, dtype: str, narrow: bool = False) -> Agreement:
    """Compare rows of a computed product with the reference.

    Of products of 8-bit operands the root mean square error of neighbours is compared as well, and
    returned where it comes closer to its bound than any element.

    Args:
        a: the rows of A that belong to the rows of C, exactly as they were multiplied.
        b: the whole of B.
        c: computed rows of C.
        dtype: the type in which C was computed.
        narrow: whether the operands had 8 bits.
    """
    exact = a @ b
    error = np.abs(c - exact)
    rounding = RESULT_UNITS[dtype] * np.abs(exact) + SUBNORMAL_UNITS[dtype]
    if not narrow:
        return worst(error=error, bound=_sums(a, b) + rounding)
    cut = _narrow_cut(a, b)
    return closest(
        [
            worst(error=error, bound=NARROW_CUTS * cut + rounding),
            worst(
                error=_of_neighbours(error),
                bound=NARROW_MEAN_CUTS * _of_neighbours(cut) + _of_neighbours(rounding),
            ),
        ]
    )


def _sums(a: Matrix, b: Matrix) -> Matrix:
    unit = SAFETY * np.sqrt(a.shape[1]) * ACCUMULATION_UNIT
    bound: Matrix = unit * (np.abs(a) @ np.abs(b))
    return bound


def _narrow_cut(a: Matrix, b: Matrix) -> Matrix:
    unit = (a.shape[1] / NARROW_STEP + 1) * NARROW_UNIT
    cut: Matrix = unit * np.sqrt(np.square(a) @ np.square(b))
    return cut


def _of_neighbours(values: Matrix) -> Matrix:
    """Return the root of the mean square of each row's neighbours."""
    starts = np.arange(0, values.shape[1], NEIGHBOURS)
    counts = np.diff(np.append(starts, values.shape[1]))
    means: Matrix = np.sqrt(np.add.reduceat(np.square(values), starts, axis=1) / counts)
    return means


def check(name: str, product: Product, a: "torch.Tensor", b: "torch.Tensor") -> Agreement:
    """Compute a product and compare rows of it with NumPy's.

    Raises:
        WrongResult: an element is further off than rounding explains.
    """
    return check_result(name, product(a, b), a, b)


def check_result(name: str, c: "torch.Tensor", a: "torch.Tensor", b: "torch.Tensor") -> Agreement:
    """Compare rows of a product of A and B with NumPy's.

    Raises:
        WrongResult: an element is further off than rounding explains.
    """
    # An odd step visits every position within a tile.
    rows = range(0, a.shape[0], ROW_STEP - 1)
    agreement = compare(
        a=in_64_bits(a[rows]),
        b=in_64_bits(b),
        c=in_64_bits(c[rows]),
        dtype=str(c.dtype).removeprefix("torch."),
        narrow=a.element_size() == 1,
    )
    logger.info("%s %s: error %.2e", name, tuple(c.shape), agreement.error)
    if not agreement.holds:
        raise WrongResult(
            f"{name}: the product of {tuple(a.shape)} and {tuple(b.shape)} is wrong by"
            f" {agreement.error:.3e} where rounding explains {agreement.bound:.3e}"
        )
    return agreement


def needs(
    shape: tuple[int, int, int], *, element_bytes: int, result_bytes: int, simulated: bool
) -> tuple[int, int]:
    """Return the bytes that a check needs at least: of tensors, and of NumPy's matrices.

    NumPy has B in 64 bits, and as much again to bound the error; a GPU has B in 64 bits, too, from
    where it is copied. The rows of A and C that are checked are few. C is there twice, once of the
    rival that is timed against it.
    """
    m, n, k = shape
    b_in_64_bits = 8 * k * n
    tensors = element_bytes * (m * k + k * n) + 2 * result_bytes * m * n
    return tensors + (0 if simulated else b_in_64_bits), 2 * b_in_64_bits


def in_64_bits(matrix: "torch.Tensor") -> Matrix:
    """Return a matrix for NumPy, element by element the same."""
    values: Matrix = matrix.double().cpu().numpy()
    return np.ascontiguousarray(values)
