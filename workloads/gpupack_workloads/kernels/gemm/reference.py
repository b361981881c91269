# SPDX-License-Identifier: Apache-2.0
"""An independent product in NumPy, and how far from it a correct one may be.

Computing with 32-bit accumulation and rounding once to the result's type, an element c of A @ B
differs from the exact one by at most L sqrt(K) u |a|.|b| + v |c|, where u = 2^-24 is the rounding
unit of the accumulation, v that of the result's type, and |a|.|b| the same product of absolute
values. That is the probabilistic bound (Higham and Mary, 2019), which fails for one element in
10^13 at L = 8. The certain bound, with K instead of L sqrt(K), is so wide that inputs cut to TF32
would pass. The reference accumulates in 64 bits, so its own error does not count.
"""

import numpy as np
import numpy.typing as npt

from gpupack_workloads.kernels.agreement import (
    ACCUMULATION_UNIT,
    RESULT_UNITS,
    SAFETY,
    SUBNORMAL_UNITS,
    Agreement,
    worst,
)

__all__ = [
    "ACCUMULATION_UNIT",
    "RESULT_UNITS",
    "SAFETY",
    "SUBNORMAL_UNITS",
    "Agreement",
    "Matrix",
    "compare",
]

Matrix = npt.NDArray[np.float64]


def compare(
    *, a: Matrix, b: Matrix, c: Matrix, dtype: str, accumulation_unit: float = ACCUMULATION_UNIT
) -> Agreement:
    """Compare rows of a computed product with the reference.

    Args:
        a: the rows of A that belong to the rows of C, exactly as they were multiplied.
        b: the whole of B.
        c: computed rows of C.
        dtype: the type in which C was computed.
        accumulation_unit: the rounding unit of the sums, where it is not that of 32-bit floats.
    """
    exact = a @ b
    bound = SAFETY * np.sqrt(a.shape[1]) * accumulation_unit * (np.abs(a) @ np.abs(b))
    bound += RESULT_UNITS[dtype] * np.abs(exact) + SUBNORMAL_UNITS[dtype]
    return worst(error=np.abs(c - exact), bound=bound)
