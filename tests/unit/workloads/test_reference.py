# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_workloads.reference.gemm import compare

HALVES = {"float32": np.float32, "float16": np.float16}


def matrices(size, dtype, seed):
    chance = np.random.default_rng(seed)
    a, b = chance.standard_normal((size, size)), chance.standard_normal((size, size))
    return a.astype(dtype).astype(np.float64), b.astype(dtype).astype(np.float64)


@given(size=st.integers(1, 96), seed=st.integers(0, 1000), dtype=st.sampled_from(list(HALVES)))
def test_a_product_in_single_precision_rounded_once_agrees(size, seed, dtype):
    a, b = matrices(size, HALVES[dtype], seed)
    c = (a.astype(np.float32) @ b.astype(np.float32)).astype(HALVES[dtype])
    assert compare(a=a, b=b, c=c.astype(np.float64), dtype=dtype).holds


@pytest.mark.parametrize("wrong", [0.01, np.nan, np.inf])
def test_one_wrong_element_is_found(wrong):
    a, b = matrices(64, np.float32, 1)
    c = a @ b
    c[17, 42] += wrong
    agreement = compare(a=a, b=b, c=c, dtype="float32")
    assert not agreement.holds


def test_the_element_that_exceeds_its_bound_most_is_shown():
    a, b = matrices(8, np.float32, 1)
    c = a @ b
    c[3, 4] += 0.5
    c[5, 6] += 0.001
    agreement = compare(a=a, b=b, c=c, dtype="float32")
    assert agreement.error == pytest.approx(0.5)
    assert 0 < agreement.bound < 0.001


def test_a_product_of_zeros_tolerates_only_the_smallest_number():
    zeros = np.zeros((4, 4))
    assert compare(a=zeros, b=zeros, c=zeros, dtype="float16").holds
    assert not compare(a=zeros, b=zeros, c=zeros + 1e-6, dtype="float16").holds


def test_eight_bit_operands_tolerate_truncation_of_tensor_cores_but_no_wrong_tile():
    a, b = matrices(96, np.float32, 3)
    cut = a @ b * (1 + 2.0**-12)
    assert compare(a=a, b=b, c=cut, dtype="bfloat16", narrow=True).holds
    assert not compare(a=a, b=b, c=np.zeros_like(cut), dtype="bfloat16", narrow=True).holds


def eighths(chance, *shape):
    """Normal numbers with four bits of precision, as 8-bit floats have them."""
    fraction, power = np.frexp(chance.standard_normal(shape))
    return np.ldexp(np.round(fraction * 16) / 16, power)


def by_tensor_cores(a, b):
    """Sum 32 products at a time, aligned with the sum so far and cut to 13 bits."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for step in range(0, a.shape[1], 32):
        products = a[:, step : step + 32, None] * b[None, step : step + 32]
        addends = np.concatenate([total[:, None], products], axis=1)
        unit = np.ldexp(2.0**-13, np.frexp(np.abs(addends).max(axis=1, keepdims=True))[1] - 1)
        total = (np.trunc(addends / unit) * unit).sum(axis=1)
    return to_bfloat16(total)


def to_bfloat16(values):
    fraction, power = np.frexp(values)
    return np.ldexp(np.round(fraction * 256) / 256, power)


@pytest.mark.parametrize("depth", [1, 8, 63, 200, 1024, 8192])
@pytest.mark.parametrize("columns", [1, 8, 130])
def test_sums_cut_as_tensor_cores_cut_them_agree(depth, columns):
    chance = np.random.default_rng(depth + columns)
    a, b = eighths(chance, 5, depth), eighths(chance, depth, columns)
    found = compare(a=a, b=b, c=by_tensor_cores(a, b), dtype="bfloat16", narrow=True)
    assert found.holds, found


@pytest.mark.parametrize("left_out", [128, 256])
def test_a_tile_of_the_summed_dimension_that_is_left_out_is_seen_in_eight_bits(left_out):
    chance = np.random.default_rng(left_out)
    a, b = eighths(chance, 4, 8192), eighths(chance, 8192, 256)
    c = by_tensor_cores(a, b)
    c[1, :128] = by_tensor_cores(a[:, left_out:], b[left_out:])[1, :128]
    assert not compare(a=a, b=b, c=c, dtype="bfloat16", narrow=True).holds
