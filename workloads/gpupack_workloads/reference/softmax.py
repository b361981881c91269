# SPDX-License-Identifier: Apache-2.0
"""Softmax and its gradient in NumPy, with error bounds.

Forward, y = exp(x - top) / sum: the argument of the exponential is exact to 2 u |x - top| after the
subtraction and the change of base, which is a relative error of y; the exponential itself, the sum
and the quotient add L sqrt(N) u at most, with u = 2^-24. Backward, dx = y (dy - y.dy): the sum is
wrong by L sqrt(N) u |y|.|dy|, the rest by a few u of its terms. Results are rounded once more to
their type.
"""

import numpy as np

from gpupack_workloads.reference.agreement import (
    ACCUMULATION_UNIT,
    RESULT_UNITS,
    SAFETY,
    SUBNORMAL_UNITS,
    Agreement,
    Values,
    worst,
)

# Below this the GPU's exponential gives zero.
FLUSHED = 2.0**-126


def softmax_forward(x: Values) -> Values:
    """Return softmax over the last dimension."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    y: Values = e / e.sum(axis=-1, keepdims=True)
    return y


def softmax_backward(y: Values, dy: Values) -> Values:
    """Return the gradient of x, given softmax(x) and its gradient."""
    dx: Values = y * (dy - (y * dy).sum(axis=-1, keepdims=True))
    return dx


def compare_forward(*, x: Values, y: Values, dtype: str) -> Agreement:
    """Compare computed rows with the reference; x exactly as it was given."""
    exact = softmax_forward(x)
    depth = x.max(axis=-1, keepdims=True) - x
    relative = (2 * depth + SAFETY * np.sqrt(x.shape[-1])) * ACCUMULATION_UNIT
    bound = exact * (relative + RESULT_UNITS[dtype]) + SUBNORMAL_UNITS[dtype] + FLUSHED
    return worst(error=np.abs(y - exact), bound=bound)


def compare_backward(*, y: Values, dy: Values, dx: Values, dtype: str) -> Agreement:
    """Compare a computed gradient with the reference; y and dy exactly as they were given."""
    exact = softmax_backward(y, dy)
    products = np.abs(y * dy).sum(axis=-1, keepdims=True)
    terms = np.abs(dy) + products * SAFETY * np.sqrt(y.shape[-1])
    bound = np.abs(y) * terms * SAFETY * ACCUMULATION_UNIT
    bound += RESULT_UNITS[dtype] * np.abs(exact) + SUBNORMAL_UNITS[dtype] + FLUSHED
    return worst(error=np.abs(dx - exact), bound=bound)
