# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main
from gpupack_workloads.cuda_matmul import STEPS, CudaMatmulOptions, steps_of


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cuda-matmul", "--size", "0"], "0 is not in the range"),
        (["cuda-matmul", "--seed", "-1"], "-1 is not in the range"),
        (["cuda-matmul", "--source", "/nowhere/mine.cu"], "'/nowhere/mine.cu' does not exist"),
        (["cuda-matmul", "--source", "/"], "'/' is a directory"),
        (["cuda-matmul", "--dtype", "bfloat16"], "--source FILE, which is missing"),
        (["cuda-matmul", "--source", __file__, "--dtype", "int8"], "'int8' is not one of"),
        (["cuda-matmul", "--compiler", "clang"], "'clang' is not one of 'nvcc', 'nvrtc'"),
        (["device-query", "--size", "3"], "No such option"),
        (["device-query", "--seed", "many"], "is not a valid integer"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, arguments)
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert "torch" not in sys.modules


def test_a_users_source_replaces_all_steps(tmp_path):
    mine = CudaMatmulOptions(source=tmp_path / "mine.cu", dtype="bfloat16")
    (step,) = steps_of(mine)
    assert (step.name, step.path, step.dtype) == ("source", mine.source, "bfloat16")
    assert steps_of(CudaMatmulOptions()) == STEPS


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_source_of_the_package_is_self_contained(step):
    text = step.path.read_text()
    assert "matmul(const" in text
    assert "__constant__ int launch[4]" in text
    assert "#include" not in text
