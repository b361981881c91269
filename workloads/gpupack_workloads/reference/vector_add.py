# SPDX-License-Identifier: Apache-2.0
"""The sum in NumPy, with its error bound: one rounding to the result's type.

32-bit floats are added by one instruction that rounds once. Shorter ones are added in 32 bits,
where a sum of two is rounded far below their own spacing, and then rounded once more.
"""

import numpy as np
import numpy.typing as npt

from gpupack_workloads.reference.agreement import RESULT_UNITS, SUBNORMAL_UNITS, Agreement, worst

Vector = npt.NDArray[np.float64]

# The first rounding of shorter types, to 32 bits, may push a tie of the second over the edge.
DOUBLE_ROUNDING = 2.0**-24


def compare(*, x: Vector, y: Vector, z: Vector, dtype: str) -> Agreement:
    """Compare computed sums with the reference; the inputs exactly as they were added."""
    exact = x + y
    unit = RESULT_UNITS[dtype] + (0 if dtype == "float32" else DOUBLE_ROUNDING)
    bound = unit * np.abs(exact) + SUBNORMAL_UNITS[dtype]
    return worst(error=np.abs(z - exact), bound=bound)
