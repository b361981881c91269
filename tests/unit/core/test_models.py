# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_core import matches_model


@pytest.mark.parametrize(
    ("asked", "model", "matches"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("h100", "NVIDIA-H100-80GB-HBM3", True),
        ("H100 80GB", "NVIDIA-H100-80GB-HBM3", True),
        ("nvidia h100 80gb hbm3", "NVIDIA-H100-80GB-HBM3", True),
        ("A10", "NVIDIA A100-SXM4-40GB", False),
        ("A100 40GB", "NVIDIA A100-SXM4-40GB", False),
        ("H100 NVL", "NVIDIA H100", False),
        ("-", "NVIDIA H100", False),
        ("H20", "NVIDIA H200", False),
    ],
)
def test_a_model_matches_by_a_run_of_whole_words(asked, model, matches):
    assert matches_model(asked, model) is matches
