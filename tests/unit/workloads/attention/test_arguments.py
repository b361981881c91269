# SPDX-License-Identifier: Apache-2.0
"""Arguments of the attention workload, judged before torch is imported."""

import pytest
from click.testing import CliRunner

from gpupack_workloads.attention.options import AttentionOptions
from gpupack_workloads.commands.attention import command
from gpupack_workloads.errors import BadArgument


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], "'--size': 0 is not in the range"),
        (["--dimension", "80"], "'80' is not one of '64', '96', '128', '192', '256'"),
        (["--layout", "padded"], "'padded' is not one of 'dense', 'varlen', 'paged'"),
        (["--page-tokens", "0"], "'--page-tokens': 0 is not in the range"),
        (["--heads", "6", "--kv-heads", "4"], "6 heads cannot share 4 key heads evenly"),
        (["--dtype", "float64"], "'float64' is not one of"),
    ],
)
def test_a_bad_argument_is_refused(arguments, message):
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_heads_that_can_be_shared_are_taken():
    assert AttentionOptions(heads=8, kv_heads=2).kv_heads == 2


def test_heads_that_cannot_be_shared_are_refused():
    with pytest.raises(BadArgument, match="6 heads cannot share 4"):
        AttentionOptions(heads=6, kv_heads=4)
