# SPDX-License-Identifier: Apache-2.0
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpupack_workloads.reference.vector_add import compare

FLOATS = st.floats(width=16, allow_nan=False, allow_infinity=False)


@given(x=FLOATS, y=FLOATS)
def test_a_sum_in_32_bits_rounded_to_16_agrees(x, y):
    z = np.float16(np.float32(x) + np.float32(y)) if abs(x + y) < 65000 else np.float16(0)
    if abs(x + y) < 65000:
        values = {name: np.array([float(value)]) for name, value in (("x", x), ("y", y), ("z", z))}
        assert compare(**values, dtype="float16").holds


def test_a_sum_that_is_off_by_two_roundings_does_not_agree():
    x, y = np.array([1.0]), np.array([1.0])
    assert not compare(x=x, y=y, z=np.array([2.0 + 2.0**-22]), dtype="float32").holds
