# SPDX-License-Identifier: Apache-2.0
"""An independent product in NumPy, and how far from it a correct one may be.

Computing with 32-bit accumulation and rounding once to the result's type, an element c of A @ B
differs from the exact one by at most L sqrt(K) u |a|.|b| + v |c|, where u = 2^-24 is the rounding
unit of the accumulation, v that of the result's type, and |a|.|b| the same product of absolute
values. That is the probabilistic bound (Higham and Mary, 2019), which fails for one element in
10^13 at L = 8. The certain bound, with K instead of L sqrt(K), is so wide that inputs cut to TF32
would pass. The reference accumulates in 64 bits, so its own error does not count.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

ACCUMULATION_UNIT = 2.0**-24
SAFETY = 8.0
RESULT_UNITS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# Below the smallest normal number rounding is absolute: half the spacing of subnormals.
SUBNORMAL_UNITS = {"float32": 2.0**-150, "float16": 2.0**-25, "bfloat16": 2.0**-134}


@dataclass(frozen=True)
class Agreement:
    """The element that comes closest to its bound, or exceeds it most.

    Attributes:
        error: its distance from the reference.
        bound: how much rounding explains there.
    """

    error: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether rounding explains every difference; a NaN is never explained."""
        return self.error <= self.bound


def compare(*, a: Matrix, b: Matrix, c: Matrix, dtype: str) -> Agreement:
    """Compare rows of a computed product with the reference.

    Args:
        a: the rows of A that belong to the rows of C, exactly as they were multiplied.
        b: the whole of B.
        c: computed rows of C.
        dtype: the type in which C was computed.
    """
    exact = a @ b
    bound = SAFETY * np.sqrt(a.shape[1]) * ACCUMULATION_UNIT * (np.abs(a) @ np.abs(b))
    bound += RESULT_UNITS[dtype] * np.abs(exact) + SUBNORMAL_UNITS[dtype]
    error = np.abs(c - exact)
    error[np.isnan(error)] = np.inf
    worst = np.unravel_index(np.argmax(error / bound), error.shape)
    return Agreement(error=float(error[worst]), bound=float(bound[worst]))
