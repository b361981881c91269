# SPDX-License-Identifier: Apache-2.0
"""The vector-add workload from the inside."""

import pytest
import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.settings import Options
from gpupack_workloads.vector_add import PIECE, check, run


def test_a_small_run_is_verified_and_timed_against_torch_and_a_copy():
    result = run(Options(size=1000, seed=2))
    assert result.verified
    assert result.metrics["error"] <= result.metrics["error_bound"]
    assert min(result.metrics["torch_ratio"], result.metrics["copy_gb_per_s"]) > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_adds_vectors_that_are_checked_in_pieces_and_end_within_a_block():
    result = run(Options(size=PIECE + 1001, seed=2))
    assert (result.verified, result.simulated) == (True, False)
    assert result.metrics["size"] == PIECE + 1001
    assert result.metrics["copy_ratio"] > 0


@pytest.mark.parametrize("wrong", [0.0, torch.nan])
def test_one_wrong_element_is_refused(wrong):
    x, y = torch.ones(50), torch.ones(50)
    z = x + y
    check(x, y, z)
    z[31] = wrong
    with pytest.raises(WrongResult, match="a sum is wrong"):
        check(x, y, z)
