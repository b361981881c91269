# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "4095"], "4095 is not in the range"),
        (["--size", "17179869185"], "17179869185 is not in the range"),
        (["--size", "1G"], "'1G' is not a valid integer"),
        (["--seed", "-1"], "-1 is not in the range"),
        (["--source", "/nowhere/peer.cu"], "'/nowhere/peer.cu' does not exist"),
        (["--source", "/"], "'/' is a directory"),
        (["--compiler", "clang"], "'clang' is not one of 'nvcc', 'nvrtc'"),
        (["--pairs", "2"], "No such option"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, ["p2p-cpp", *arguments])
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert "torch" not in sys.modules
