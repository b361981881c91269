# SPDX-License-Identifier: Apache-2.0
"""The vector-add workload from the inside."""

import pytest
import torch

from gpupack_workloads.errors import WrongResult
from gpupack_workloads.settings import Options
from gpupack_workloads.vector_add import check, run


def test_a_small_run_is_verified_and_timed_beside_torch_and_a_copy():
    result = run(Options(size=1000, seed=2))
    assert result.verified
    assert result.metrics["error"] <= result.metrics["error_bound"]
    assert min(result.metrics["torch_ratio"], result.metrics["copy_gb_per_s"]) > 0


@pytest.mark.parametrize("wrong", [0.0, torch.nan])
def test_one_wrong_element_is_refused(wrong):
    x, y = torch.ones(50), torch.ones(50)
    z = x + y
    check(x, y, z)
    z[31] = wrong
    with pytest.raises(WrongResult, match="a sum is wrong"):
        check(x, y, z)
