# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], "0 is not in the range"),
        (["--layout", "columns"], "'columns' is not one of"),
        (["--chunks", "0"], "0 is not in the range"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, ["matmul-multi", *arguments])
    assert (outcome.exit_code, message in outcome.output) == (2, True)
    assert "torch" not in sys.modules
