# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from click.testing import CliRunner

from gpupack_workloads.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "4"], "4 is not in the range"),
        (["--operation", "all-reduces"], "'all-reduces' is not one of"),
        (["--size", "64", "--smallest", "128"], "--size 64 is below --smallest 128"),
        (["--operation", "broadcast", "--tune"], "add --operation all-reduce"),
        (["--dtype", "float8"], "'float8' is not one of"),
        (["-o", "median"], "'median' is not one of"),
        (["-n", "0"], "0 is not in the range"),
        (["-w", "-1"], "-1 is not in the range"),
        (["--operation", "gather", "-o", "max"], "--reduce-op is for all-reduce, reduce-scatter"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, ["collectives", *arguments])
    assert (outcome.exit_code, message in outcome.output) == (2, True)
    assert "torch" not in sys.modules
