# SPDX-License-Identifier: Apache-2.0
"""The Triton softmax, forward and backward; interpreted where there is no GPU."""

import importlib
import os

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import triton
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.softmax import launch
from gpupack_kernels.operators.softmax.kernel import rows_of_program
from gpupack_kernels.operators.softmax.launch import backward, forward
from gpupack_kernels.operators.softmax.ops import softmax
from gpupack_kernels.operators.softmax.tuning import Chunks, Passes, Rows
from gpupack_workloads.reference.softmax import compare_backward, compare_forward

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if DEVICE == "cuda" else [])
SHAPES = [(1, 1), (3, 7), (130, 33), (5, 1024), (4, 1500), (2, 32768), (2, 40001)]
GPU_SHAPES = [
    (rows, columns)
    for rows in (1, 300)
    for columns in (2, 64, 512, 2048, 4100, 8192, 12288, 16384, 20000, 32000, 32760, 32768, 100000)
]


def values(*shape: int, dtype: torch.dtype, seed: int = 5) -> torch.Tensor:
    chance = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(shape, generator=chance)).to(DEVICE, dtype)


def numpy(rows: torch.Tensor) -> np.ndarray:
    return rows.double().cpu().numpy()


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_both(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x, dy = values(*shape, dtype=dtype), values(*shape, dtype=dtype, seed=6)
    y = forward(x)
    agreement = compare_forward(x=numpy(x), y=numpy(y), dtype=name(dtype))
    assert agreement.holds, agreement
    dx = backward(y, dy)
    agreement = compare_backward(y=numpy(y), dy=numpy(dy), dx=numpy(dx), dtype=name(dtype))
    assert agreement.holds, agreement


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_and_backward_agree_with_numpy(shape, dtype):
    check_both(shape, dtype)


@pytest.mark.parametrize("columns", [256, 200, 65])
@pytest.mark.parametrize(
    "plan",
    [
        Rows(warps=1),
        Rows(warps=1, rows=4),
        Chunks(warps=1, chunk=64),
        Chunks(warps=1, chunk=128, looks=3),
        Passes(warps=1, chunk=64, stages=2),
    ],
    ids=str,
)
def test_every_plan_that_triton_itself_computes_agrees_with_numpy(monkeypatch, plan, columns):
    monkeypatch.setattr(launch, "plan_for", lambda *_: plan)
    check_both((7, columns), torch.float32)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", GPU_SHAPES, ids=str)
def test_every_way_to_compute_rows_agrees_with_numpy(shape, dtype):
    check_both(shape, dtype)


def test_gradients_agree_with_torchs():
    x = values(6, 5, 30, dtype=torch.float32).requires_grad_()
    dy = values(6, 5, 30, dtype=torch.float32, seed=9)
    (ours,) = torch.autograd.grad(softmax(x), x, dy)
    (theirs,) = torch.autograd.grad(torch.softmax(x, -1), x, dy)
    torch.testing.assert_close(ours, theirs)


def test_rows_may_lie_apart():
    x = values(9, 80, dtype=torch.float32)[::2, 3:50]
    torch.testing.assert_close(softmax(x), torch.softmax(x, -1))
    torch.testing.assert_close(softmax(x.T), torch.softmax(x.T, -1))


def test_large_values_do_not_overflow_and_excluded_ones_get_nothing():
    x = torch.tensor([[1e30, 1e30, -1e30], [0.0, 0.0, -torch.inf]], device=DEVICE)
    expected = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]], device=DEVICE)
    with np.errstate(over="ignore"):
        torch.testing.assert_close(softmax(x), expected)


@pytest.mark.parametrize("columns", [3, 40000])
def test_a_row_without_any_finite_value_has_no_softmax_as_with_torch(columns):
    with np.errstate(invalid="ignore"):
        assert softmax(torch.full((1, columns), -torch.inf, device=DEVICE)).isnan().all()


@triton.jit
def numbers_of_rows_kernel(numbers_ptr, count, ROWS: tl.constexpr):  # noqa: N803  as kernels do
    tl.store(numbers_ptr + tl.arange(0, ROWS), rows_of_program(count, ROWS))


@pytest.mark.skipif(
    DEVICE == "cuda", reason="only the interpreter can be given the program's number"
)
def test_rows_beyond_32_bits_are_counted_rightly(monkeypatch):
    builder = importlib.import_module("triton.runtime.interpreter").interpreter_builder
    program = TensorHandle(np.array([2**29 + 1], dtype=np.int32), tl.int32)
    monkeypatch.setattr(builder, "create_get_program_id", lambda _: program)
    numbers = torch.zeros(4, dtype=torch.int64)
    numbers_of_rows_kernel[(1,)](numbers, 2**31 + 7, ROWS=4)
    assert numbers.tolist() == [2**31 + 4, 2**31 + 5, 2**31 + 6, 2**31 + 6]


def test_a_single_number_is_refused():
    with pytest.raises(Unsupported, match="not a single number"):
        softmax(torch.zeros((), device=DEVICE))


def test_whole_numbers_are_refused():
    with pytest.raises(Unsupported, match="int32 is not computed here"):
        softmax(torch.zeros((3, 2), device=DEVICE, dtype=torch.int32))


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU computes bfloat16 rightly")
def test_bfloat16_is_refused_without_a_gpu():
    with pytest.raises(Unsupported, match="interpreter computes it wrongly"):
        softmax(torch.zeros((3, 2), dtype=torch.bfloat16))
