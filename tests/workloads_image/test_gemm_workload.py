# SPDX-License-Identifier: Apache-2.0
"""The gemm workload from the inside."""

import itertools

import pytest
import torch

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument, WrongResult
from gpupack_workloads.gemm import run
from gpupack_workloads.gemm.options import GemmOptions
from gpupack_workloads.gemm.problems import GemmProblem, operands, problems, rival
from gpupack_workloads.gemm.session import head_start_ms, measure, repeats

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
CPU = Device(torch.device("cpu"), "CPU")
FP8 = torch.float8_e4m3fn


@no_gpu
def test_a_small_run_is_verified_in_every_type_and_against_torch():
    result = run(GemmOptions(seed=3))
    assert (result.verified, result.simulated) == (True, True)
    assert [row["dtype"] for row in result.rows] == ["float32", "float16", "float32"]
    assert result.metrics["error"] <= result.metrics["error_bound"]
    assert result.metrics["float16_96_cublas_ratio"] > 0


@no_gpu
def test_eight_bit_operands_are_multiplied_where_no_library_does():
    result = run(GemmOptions(size=40, dtype="float8_e4m3fn"))
    assert result.verified
    assert "float8_e4m3fn_40_cublas_ratio" not in result.metrics


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_every_type_is_measured_against_cublas_on_a_gpu():
    result = run(GemmOptions(size=1024))
    assert result.metrics["bfloat16_ragged_1024_cublas_ratio"] > 0
    assert result.metrics["float8_e4m3fn_1024_cublas_ratio"] > 0


def test_a_wrong_product_is_refused():
    problem = GemmProblem(shape=(70, 20, 30), dtype=torch.float32)
    with pytest.raises(WrongResult, match="gemm float32_70"):
        measure(problem, lambda a, b: (a @ b) * 1.001, device=CPU, seed=0)


def test_a_product_that_goes_wrong_while_it_is_timed_is_refused():
    problem = GemmProblem(shape=(70, 20, 30), dtype=torch.float32)
    with pytest.raises(WrongResult, match="gemm float32_70, as it was timed"):
        measure(problem, right_once(), device=CPU, seed=0)


def right_once():
    factors = itertools.chain([1.0], itertools.repeat(1.001))
    return lambda a, b: (a @ b) * next(factors)


@no_gpu
def test_bfloat16_is_refused_without_a_gpu():
    with pytest.raises(BadArgument, match="bfloat16 needs a GPU"):
        run(GemmOptions(size=16, dtype="bfloat16"))


def test_on_a_gpu_squares_of_three_types_and_a_ragged_product_are_measured():
    wanted = problems(GemmOptions(), simulated=False)
    assert [problem.name for problem in wanted] == [
        "bfloat16_4096",
        "bfloat16_8192",
        "float16_4096",
        "float16_8192",
        "float8_e4m3fn_4096",
        "float8_e4m3fn_8192",
        "bfloat16_ragged_4096",
    ]
    assert wanted[-1].shape == (4095, 4097, 4099)


def test_eight_bit_operands_lie_as_tensor_cores_want_them():
    a, b = operands(GemmProblem(shape=(3, 5, 7), dtype=FP8), device=CPU, seed=1)
    assert (a.shape, b.shape) == ((3, 7), (7, 5))
    assert (a.stride(1), b.stride(0)) == (1, 1)


def test_cublas_has_no_ragged_product_of_eight_bits():
    problem = GemmProblem(shape=(17, 16, 16), dtype=FP8)
    assert rival(problem, *operands(problem, device=CPU, seed=1)) is None


def test_large_products_are_repeated_less():
    small, large = (GemmProblem(shape=(size,) * 3, dtype=FP8) for size in (256, 65536))
    assert (repeats(small), repeats(large)) == (50, 1)


def test_short_products_are_launched_while_the_gpu_waits():
    kinds = [(4096, FP8), (4096, torch.bfloat16), (8192, FP8)]
    starts = [head_start_ms(GemmProblem(shape=(n, n, n), dtype=dtype)) for n, dtype in kinds]
    assert [start > 0 for start in starts] == [True, False, False]
