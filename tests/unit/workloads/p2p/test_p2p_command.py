# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "7"], "7 is not in the range"),
        (["--size", "1G"], "'1G' is not a valid integer"),
        (["--seed", "-1"], "-1 is not in the range"),
        (["--pairs", "2"], "No such option"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, ["p2p", *arguments])
    assert (outcome.exit_code, message in outcome.output) == (2, True)
    assert "torch" not in sys.modules
