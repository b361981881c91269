# SPDX-License-Identifier: Apache-2.0
"""The softmax workload from the inside."""

import pytest
import torch

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.softmax import run
from gpupack_workloads.softmax.measure import Case, check
from gpupack_workloads.softmax.options import SoftmaxOptions
from gpupack_workloads.softmax.session import cases

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
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
    case = Case(rows=8, columns=64, dtype=torch.float32)
    x, dy = torch.randn(8, 64), torch.randn(8, 64)
    y = torch.softmax(x, -1)
    dx = y * (dy - (y * dy).sum(-1, keepdim=True))
    check(case, x, dy, y, dx)
    (y if way == "forward" else dx)[7] *= 1.001
    with pytest.raises(WrongResult, match=f"softmax {way} 8 x 64 float32"):
        check(case, x, dy, y, dx)


def test_matrices_are_of_one_size_whatever_the_length_of_a_row():
    wanted = cases(SoftmaxOptions(), GPU)
    assert {case.rows * case.columns for case in wanted} == {1 << 28}
    assert {case.columns for case in wanted} == {1024, 2048, 4096, 8192, 16384, 32768}


def test_a_row_longer_than_all_elements_is_still_one_row():
    (case, _) = cases(SoftmaxOptions(size=10, columns=100), GPU)
    assert case.rows == 1
