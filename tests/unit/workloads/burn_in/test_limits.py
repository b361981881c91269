# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from click.testing import CliRunner

from gpupack_workloads.burn_in.limits import KNOWN, LIMITS, limits_for, parse_limits
from gpupack_workloads.cli import main
from gpupack_workloads.errors import BadArgument


def test_a_known_gpu_has_limits_for_its_speed_and_an_unknown_one_has_none():
    known = limits_for("NVIDIA H200", simulated=False, replaced={})
    unknown = limits_for("NVIDIA X", simulated=False, replaced={})
    assert known["min_gemm_tflops"] > 400
    assert unknown["min_gemm_tflops"] is None
    assert known["max_wrong_words"] == unknown["max_wrong_words"] == 0


def test_the_users_limits_go_before_the_devices():
    replaced = parse_limits(("min_gemm_tflops=650.5", "max_temperature_c=none"))
    limits = limits_for("NVIDIA H200", simulated=False, replaced=replaced)
    assert limits["min_gemm_tflops"] == 650.5
    assert limits["max_temperature_c"] is None


def test_what_is_known_of_a_gpu_are_limits_that_there_are():
    for known in KNOWN.values():
        assert set(known) <= set(LIMITS)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("max_heat=80",), "there is no limit 'max_heat'; there are max_wrong_words,"),
        (("max_temperature_c=hot",), "limit max_temperature_c is 'hot', neither a number nor none"),
        (("max_temperature_c=-1",), "must be 0 or more"),
        (("max_temperature_c=inf",), "finite"),
        (("max_xids=1", "max_xids=2"), "max_xids is given twice"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(texts, message):
    with pytest.raises(BadArgument, match=message):
        parse_limits(texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", "0"], "0 is not in the range"),
        (["--memory-percent", "nan"], "nan is no number"),
        (["--memory-percent", "99"], "99.0 is not in the range"),
        (["--limit", "max_heat=80"], "there is no limit 'max_heat'"),
    ],
)
def test_bad_arguments_end_with_status_2_before_torch_is_imported(arguments, message):
    outcome = CliRunner().invoke(main, ["burn-in", *arguments])
    assert (outcome.exit_code, message in outcome.output) == (2, True), outcome.output
    assert "torch" not in sys.modules


def test_help_names_every_limit():
    help_text = CliRunner().invoke(main, ["burn-in", "--help"]).output
    assert [name for name in LIMITS if name not in help_text] == []
