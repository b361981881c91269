# SPDX-License-Identifier: Apache-2.0
"""Checks a product as it was computed: NumPy computes rows of it again, in 64 bits.

The rows are spread over the whole matrix. Every tile of 64 rows has at least one of them, so a tile
that was skipped or computed twice is seen.
"""

import logging
from collections.abc import Callable

import numpy as np
import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.kernels.agreement import Agreement
from gpupack_workloads.kernels.gemm.reference import Matrix, compare

logger = logging.getLogger(__name__)

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

ROW_STEP = 64


def check(name: str, product: Product, a: torch.Tensor, b: torch.Tensor) -> Agreement:
    """Compute a product and compare rows of it with NumPy's.

    Raises:
        WrongResult: an element is further off than rounding explains.
    """
    return check_result(name, product(a, b), a, b)


def check_result(name: str, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Agreement:
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
    rival that is timed beside it.
    """
    m, n, k = shape
    b_in_64_bits = 8 * k * n
    tensors = element_bytes * (m * k + k * n) + 2 * result_bytes * m * n
    return tensors + (0 if simulated else b_in_64_bits), 2 * b_in_64_bits


def in_64_bits(matrix: torch.Tensor) -> Matrix:
    """Return a matrix for NumPy, element by element the same."""
    values: Matrix = matrix.double().cpu().numpy()
    return np.ascontiguousarray(values)
