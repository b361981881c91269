# SPDX-License-Identifier: Apache-2.0
"""The softmax workload from the inside."""

import os
from types import SimpleNamespace

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import triton

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.softmax import run
from gpupack_workloads.softmax.measure import (
    Repetitions,
    SoftmaxProblem,
    check,
    checked_rows,
    measure,
)
from gpupack_workloads.softmax.options import SoftmaxOptions
from gpupack_workloads.softmax.session import problems

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
CPU = Device(torch.device("cpu"), "CPU")
GPU = Device(torch.device("cuda", 0), "GPU")


@no_gpu
def test_a_small_run_is_verified_forward_and_backward():
    result = run(SoftmaxOptions(size=2000, columns=300, seed=4))
    assert (result.verified, result.simulated) == (True, True)
    for way in ("forward", "backward"):
        assert result.metrics[f"{way}_error"] <= result.metrics[f"{way}_error_bound"]
        assert result.rows[0][f"{way}_copy_ratio"] == result.metrics[f"{way}_copy_ratio"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_every_length_is_measured_on_a_gpu():
    result = run(SoftmaxOptions(size=1 << 24))
    assert len(result.rows) == 12
    assert result.metrics["forward_torch_ratio"] > 0


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_one_wrong_row_is_refused(way):
    problem = SoftmaxProblem(rows=8, columns=64, dtype=torch.float32)
    x, dy = torch.randn(8, 64), torch.randn(8, 64)
    y = torch.softmax(x, -1)
    dx = y * (dy - (y * dy).sum(-1, keepdim=True))
    check(problem, x, dy, y, dx)
    (y if way == "forward" else dx)[7] *= 1.001
    with pytest.raises(WrongResult, match=f"softmax {way} 8 x 64 float32"):
        check(problem, x, dy, y, dx)


def test_matrices_are_of_one_size_whatever_the_length_of_a_row():
    wanted = problems(SoftmaxOptions(), GPU)
    assert {problem.rows * problem.columns for problem in wanted} == {1 << 28}
    assert {problem.columns for problem in wanted} == {1024, 2048, 4096, 8192, 16384, 32768}


def test_a_row_longer_than_all_elements_is_still_one_row():
    (problem, _) = problems(SoftmaxOptions(size=10, columns=100), GPU)
    assert problem.rows == 1


@pytest.mark.parametrize("columns", [1024, 2048, 4096, 8192, 16384, 32768])
def test_checked_rows_visit_every_place_that_a_row_has_within_its_program(columns):
    rows = (1 << 28) // columns
    checked = range(rows)[checked_rows(SoftmaxProblem(rows, columns, torch.float32))]
    assert checked[-1] == rows - 1
    assert {row % 8 for row in checked} == set(range(8))


def test_every_other_row_that_is_wrong_is_noticed():
    problem = SoftmaxProblem(rows=4096, columns=1024, dtype=torch.float32)
    x = torch.randn(problem.rows, problem.columns)
    y = torch.softmax(x, -1)
    dx = y * (x - (y * x).sum(-1, keepdim=True))
    y[::2] *= 1.001
    with pytest.raises(WrongResult, match="softmax forward"):
        check(problem, x, x, y, dx)


@no_gpu
def test_what_goes_wrong_while_it_is_timed_is_noticed(monkeypatch):
    calls = SimpleNamespace(count=0)

    def forward(x):
        calls.count += 1
        return torch.softmax(x, -1) * (1 if calls.count < 4 else 1.001)

    functions = {
        "forward": forward,
        "backward": lambda y, dy: y * (dy - (y * dy).sum(-1, keepdim=True)),
    }
    monkeypatch.setattr("gpupack_workloads.softmax.measure.load", lambda _, name: functions[name])
    problem = SoftmaxProblem(rows=8, columns=64, dtype=torch.float32)
    with pytest.raises(WrongResult, match="softmax forward"):
        measure(
            problem, device=CPU, repetitions=Repetitions(repeats=1, rounds=5, warm_up=0), seed=0
        )


def test_the_result_says_which_triton_has_computed_it():
    result = run(SoftmaxOptions(size=2000, columns=300))
    assert result.metrics["triton_version"] == triton.__version__
