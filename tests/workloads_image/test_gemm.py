# SPDX-License-Identifier: Apache-2.0
"""The Triton GEMM; interpreted where there is no GPU."""

import os

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.kernels.gemm.launch import gemm
from gpupack_workloads.kernels.gemm.reference import compare

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if DEVICE == "cuda" else [])
SHAPES = [(1, 1, 1), (16, 16, 16), (128, 128, 128), (129, 127, 130), (257, 3, 65), (5, 300, 1)]


def matrices(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(7)
    a, b = torch.randn((m, k), generator=chance), torch.randn((k, n), generator=chance)
    return a.to(DEVICE, dtype), b.to(DEVICE, dtype)


def numpy(matrix: torch.Tensor) -> np.ndarray:
    return matrix.double().cpu().numpy()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_agrees_with_numpy(shape, dtype):
    a, b = matrices(*shape, dtype)
    name = str(dtype).removeprefix("torch.")
    agreement = compare(a=numpy(a), b=numpy(b), c=numpy(gemm(a, b)), dtype=name)
    assert agreement.holds, agreement


def test_transposed_matrices_are_read_through_their_strides():
    a, b = matrices(70, 90, 40, torch.float32)
    torch.testing.assert_close(gemm(b.T, a.T), torch.matmul(b.T, a.T))


def test_a_zero_result_is_exactly_zero():
    a, _ = matrices(33, 1, 17, torch.float16)
    assert not gemm(a, torch.zeros((17, 20), device=DEVICE, dtype=torch.float16)).any()


def test_shapes_that_do_not_fit_are_refused():
    a, b = matrices(4, 5, 6, torch.float32)
    with pytest.raises(BadArgument, match=r"cannot multiply \(4, 6\) by \(5, 6\)"):
        gemm(a, b.T)


def test_an_empty_matrix_is_refused():
    with pytest.raises(BadArgument, match="empty"):
        gemm(torch.zeros((0, 3), device=DEVICE), torch.zeros((3, 2), device=DEVICE))


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU computes bfloat16 rightly")
def test_bfloat16_is_refused_without_a_gpu():
    a, b = matrices(2, 2, 2, torch.bfloat16)
    with pytest.raises(BadArgument, match="interpreter computes it wrongly"):
        gemm(a, b)
