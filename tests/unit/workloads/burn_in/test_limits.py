# SPDX-License-Identifier: Apache-2.0
import sys

import pytest
from click.testing import CliRunner

from gpupack_workloads.burn_in.limits import LIMITS, basis_of, limits_for, of_model, parse_limits
from gpupack_workloads.burn_in.models import DATA_SHEETS, MEASURED
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


def test_the_limits_of_known_gpus_exist():
    for model in {*MEASURED, *DATA_SHEETS}:
        assert set(of_model(model)) <= set(LIMITS)


@pytest.mark.parametrize(
    ("model", "healthy", "half"),
    [
        ("NVIDIA A100-SXM4-80GB", 250, 125),
        ("NVIDIA H100 80GB HBM3", 600, 300),
        ("Tesla T4", 25, 12),
    ],
)
def test_a_gpu_at_half_its_speed_is_below_its_limit_and_a_healthy_one_above(model, healthy, half):
    limit = limits_for(model, simulated=False, replaced={})["min_gemm_tflops"]
    assert half < limit < healthy


def test_measured_speeds_are_consistent_with_data_sheets():
    for model, measured in MEASURED.items():
        sheet = DATA_SHEETS[model].limits()
        assert all(0.8 < measured[name] / sheet[name] < 1.3 for name in sheet)


def test_speeds_without_a_data_sheet_are_compared_with_peers():
    of_peers = {"min_gemm_tflops": 1.0, "min_host_to_device_gb_per_s": 9.6}
    limits = limits_for("Tesla T4", simulated=False, replaced={}, of_peers=of_peers)
    assert limits["min_host_to_device_gb_per_s"] == 9.6
    assert limits["min_gemm_tflops"] == DATA_SHEETS["Tesla T4"].limits()["min_gemm_tflops"]


@pytest.mark.parametrize(
    ("model", "replaced", "peers", "basis"),
    [
        ("NVIDIA H200", {}, {}, "measured"),
        ("NVIDIA A100-SXM4-80GB", {}, {"min_gemm_tflops": 1.0}, "data sheet"),
        ("NVIDIA X", {}, {"min_gemm_tflops": 80.0}, "peers"),
        ("NVIDIA X", {}, {}, "unjudged"),
        ("NVIDIA H200", {"min_gemm_tflops": 650.0}, {}, "arguments"),
        ("NVIDIA H200", {"min_gemm_tflops": None}, {}, "unjudged"),
    ],
)
def test_the_reference_of_a_speed_is_reported(model, replaced, peers, basis):
    where = {"simulated": False, "replaced": replaced, "of_peers": peers}
    assert basis_of(model, **where) == basis
    assert (limits_for(model, **where)["min_gemm_tflops"] is None) == (basis == "unjudged")


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
def test_an_invalid_limit_is_refused(texts, message):
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
