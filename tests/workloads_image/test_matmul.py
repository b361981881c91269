# SPDX-License-Identifier: Apache-2.0
"""The matmul workload from the inside: what it checks and what it says."""

import itertools

import numpy as np
import pytest
import torch

from gpupack_workloads.devices import Device, choose_device, memory_errors
from gpupack_workloads.errors import NoSuchDevice, OutOfMemory, WrongResult
from gpupack_workloads.matmul import compare_numpy, run
from gpupack_workloads.reference.gemm import check
from gpupack_workloads.results import encode
from gpupack_workloads.settings import Options

CPU = Device(torch.device("cpu"), "CPU")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def one_row_off(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    product = torch.matmul(a, b)
    product[64:128] += 0.01
    return product


def test_a_product_with_one_wrong_tile_is_refused():
    a, b = torch.randn(256, 256), torch.randn(256, 256)
    with pytest.raises(WrongResult, match="rounding explains"):
        check("torch", one_row_off, a, b)


def test_a_product_with_a_nan_is_refused():
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    with pytest.raises(WrongResult):
        check("torch", lambda a, b: torch.full((8, 8), torch.nan), a, b)


def test_a_product_that_goes_wrong_while_it_is_timed_is_refused(monkeypatch):
    # Five times where shapes are tried and the product is checked; the sixth is timed.
    calls, real = itertools.count(1), torch.matmul
    monkeypatch.setattr(torch, "matmul", lambda a, b: real(a, b) * (1.01 if next(calls) > 5 else 1))
    with pytest.raises(WrongResult, match="torch, as it was timed: the product"):
        run(Options(size=64))


def test_inputs_cut_to_tf32_are_noticed():
    def cut(matrix: torch.Tensor) -> torch.Tensor:
        return (matrix.view(torch.int32) & ~0x1FFF).view(torch.float32)

    a, b = torch.randn(256, 256), torch.randn(256, 256)
    with pytest.raises(WrongResult):
        check("torch", lambda a, b: torch.matmul(cut(a), cut(b)), a, b)


def test_a_small_run_is_verified_and_fits_a_termination_message():
    result = run(Options(size=256, seed=3))
    assert result.verified
    assert result.metrics["torch_error"] <= result.metrics["torch_error_bound"]
    assert len(encode(result)) < 1024


@no_gpu
def test_a_required_gpu_that_is_not_there_is_an_error():
    with pytest.raises(NoSuchDevice, match="CUDA finds none"):
        choose_device(require_gpu=True)


def test_a_matrix_that_does_not_fit_is_out_of_memory():
    with pytest.raises(OutOfMemory, match="a huge matrix"), memory_errors("a huge matrix"):
        torch.empty(2**60, dtype=torch.uint8)


@no_gpu
def test_numpy_and_torch_are_compared_from_small_to_the_chosen_size():
    result = run(Options(size=300))
    assert [row["size"] for row in result.rows] == [256, 300]
    assert result.metrics["speed_up"] == result.rows[-1]["speed_up"] > 0
    assert result.metrics["numpy_error"] <= result.metrics["numpy_error_bound"]
    assert result.metrics["cpu_threads"] >= 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_multiplies_by_both_kernels_and_against_numpy():
    result = run(Options(size=1024, seed=3))
    assert (result.verified, result.simulated) == (True, False)
    assert result.metrics["dtype"] == "bfloat16"
    assert result.metrics["triton_error"] <= result.metrics["triton_error_bound"]
    assert result.rows[-1]["size"] == 1024


def test_sizes_double_up_to_4096_and_end_with_the_chosen_one():
    assert compare_numpy.sizes(8192, simulated=False) == [256, 512, 1024, 2048, 4096, 8192]
    assert compare_numpy.sizes(1000, simulated=False) == [256, 512, 1024, 2048, 4096, 1000]
    assert compare_numpy.sizes(512, simulated=True) == [256, 512]
    assert compare_numpy.sizes(100, simulated=True) == [100]


def test_a_size_that_would_take_numpy_too_long_is_left_out(monkeypatch):
    small = compare_numpy.compared(64, device=CPU, seed=0)
    monkeypatch.setattr(compare_numpy, "MAX_NUMPY_SECONDS", small.numpy_seconds)
    found = compare_numpy.compare_sizes([64, 512], device=CPU, options=Options())
    assert [comparison.size for comparison in found] == [64]


def test_products_that_differ_are_refused(monkeypatch):
    monkeypatch.setattr(torch, "matmul", lambda a, b: (a @ b) * 1.01)
    with pytest.raises(WrongResult, match="NumPy's and torch's product of 64 x 64"):
        compare_numpy.compared(64, device=CPU, seed=0)


@pytest.mark.parametrize("wrong", [0.01, np.inf])
def test_one_element_that_is_off_is_seen(wrong):
    chance = np.random.default_rng(1)
    a, b = (chance.standard_normal((40, 40), dtype=np.float32) for _ in range(2))
    product = a @ b
    other = product.copy()
    assert compare_numpy.compare(a, b, product, other).holds
    other[3, 4] += wrong
    assert not compare_numpy.compare(a, b, product, other).holds
