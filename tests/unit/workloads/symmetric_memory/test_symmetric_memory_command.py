# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "4"], "4 is not in the range"),
        (["--part", "puts"], "'puts' is not one of"),
        (["--rows", "0"], "0 is not in the range"),
        (["--depth", "0"], "0 is not in the range"),
        (["--columns", "-1"], "-1 is not in the range"),
        (["--dtype", "float32"], "'float32' is not one of"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, ["symmetric-memory", *arguments])
    assert (outcome.exit_code, message in outcome.output) == (2, True)
    assert "torch" not in sys.modules
