# SPDX-License-Identifier: Apache-2.0
"""The matmul workload from the inside: what it checks and what it says."""

import pytest
import torch

from gpupack_workloads.devices import Device, choose_device, memory_errors
from gpupack_workloads.errors import NoSuchDevice, OutOfMemory, WrongResult
from gpupack_workloads.kernels.gemm.checking import check
from gpupack_workloads.matmul import run
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
