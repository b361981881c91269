# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from gpupack_workloads.reference.softmax import (
    compare_backward,
    compare_forward,
    softmax_backward,
    softmax_forward,
)


@pytest.fixture
def rows():
    return np.random.default_rng(3).standard_normal((5, 40))


def test_rows_of_softmax_sum_to_one_and_keep_the_order(rows):
    y = softmax_forward(rows)
    assert y.sum(axis=-1) == pytest.approx(np.ones(5))
    assert (np.argsort(y) == np.argsort(rows)).all()


def test_the_gradient_is_that_of_a_small_step(rows):
    dy, step = np.random.default_rng(4).standard_normal(rows.shape), 1e-6
    moved = rows.copy()
    moved[2, 7] += step
    slope = ((softmax_forward(moved) - softmax_forward(rows)) * dy).sum() / step
    assert softmax_backward(softmax_forward(rows), dy)[2, 7] == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("wrong", [1e-4, np.nan])
def test_one_wrong_element_is_found_forward_and_backward(rows, wrong):
    y = softmax_forward(rows)
    dx = softmax_backward(y, rows)
    assert compare_forward(x=rows, y=y, dtype="float32").holds
    assert compare_backward(y=y, dy=rows, dx=dx, dtype="float32").holds
    y_off, dx_off = y.copy(), dx.copy()
    y_off[1, 2] += wrong
    dx_off[1, 2] += wrong
    assert not compare_forward(x=rows, y=y_off, dtype="float32").holds
    assert not compare_backward(y=y, dy=rows, dx=dx_off, dtype="float32").holds


def test_results_in_16_bits_may_differ_by_their_rounding(rows):
    y = softmax_forward(rows).astype(np.float16).astype(np.float64)
    assert compare_forward(x=rows, y=y, dtype="float16").holds
    assert not compare_forward(x=rows, y=y, dtype="float32").holds
