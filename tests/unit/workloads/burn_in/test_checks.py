# SPDX-License-Identifier: Apache-2.0
"""Findings of a burn-in from its observations."""

import math

import pytest

from gpupack_workloads.burn_in.checks import (
    Check,
    ComputeReport,
    CopyReport,
    MemoryReport,
    Observed,
    findings,
    judge,
)
from gpupack_workloads.burn_in.limits import limits_for
from gpupack_workloads.burn_in.sensors import Sample, Slowdowns

H200 = limits_for("NVIDIA H200", simulated=False, replaced={})
COUNTERS = {
    "corrected_ecc_errors": 3,
    "uncorrected_ecc_errors": 1,
    "remapped_rows": 2,
    "remapping_troubles": 0,
    "recovery_action": 0,
    "pcie_replays": 7,
}
COOL = Sample(
    temperature_c=60,
    memory_temperature_c=70,
    clock_ratio=0.7,
    slowdowns=Slowdowns(heat=False, board=False),
)
HOT = Sample(temperature_c=91, slowdowns=Slowdowns(heat=True, board=True))


def product(*tflops, wrong=0):
    return ComputeReport(
        products=100, wrong_products=wrong, residual=0.0, bound=0.0, tflops=tflops, detail=""
    )


def observed(**changes):
    """Return the observations of a healthy H200 with changes."""
    fields = {
        "memory": MemoryReport(tested_bytes=2**37, passes=40, wrong_words=0),
        "compute": {"bfloat16": product(690, 680, 700), "float16": product(650)},
        "copies": {
            "device_copy": CopyReport(4290, changed=False),
            "host_to_device": CopyReport(50, changed=False),
            "device_to_host": CopyReport(50, changed=False),
        },
        "before": COUNTERS,
        "after": COUNTERS,
        "samples": [COOL] * 20,
    }
    return Observed(**(fields | changes))


def wrong(**changes):
    return [check.name for check in findings(judge(observed(**changes), H200))]


def test_a_gpu_within_every_limit_is_healthy_whatever_happened_to_it_before():
    assert wrong() == []


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"memory": MemoryReport(2**37, 40, 1, "bit 5")}, ["max_wrong_words"]),
        ({"compute": {"bfloat16": product(690, wrong=1)}}, ["max_wrong_products"]),
        ({"compute": {"bfloat16": product(400)}}, ["min_gemm_tflops"]),
        ({"compute": {"bfloat16": product(*[690] * 8, 300, 300)}}, ["min_steady_ratio"]),
        ({"samples": [COOL] * 9 + [HOT]}, ["max_temperature_c", "max_thermal_slowdown_ratio",
                                           "max_hardware_slowdown_ratio"]),
        ({"samples": [Sample(clock_ratio=0.2)]}, ["min_sm_clock_ratio"]),
        ({"samples": [Sample(memory_temperature_c=99)]}, ["max_memory_temperature_c"]),
        ({"after": COUNTERS | {"uncorrected_ecc_errors": 2}}, ["max_uncorrected_ecc_errors"]),
        ({"after": COUNTERS | {"corrected_ecc_errors": 14}}, ["max_corrected_ecc_errors"]),
        ({"after": COUNTERS | {"remapped_rows": 3}}, ["max_remapped_rows"]),
        ({"after": COUNTERS | {"pcie_replays": 108}}, ["max_pcie_replays"]),
        ({"after": COUNTERS | {"recovery_action": 1}}, ["max_recovery_action"]),
        ({"xids": [48]}, ["max_xids"]),
        ({"failure": "CUDA error: unspecified launch failure"}, ["max_device_failures"]),
    ],
)  # fmt: skip
def test_a_fault_is_named(changes, names):
    assert wrong(**changes) == names


def test_a_row_that_waits_for_a_reset_counts_though_it_waited_before():
    waiting = COUNTERS | {"remapping_troubles": 1}
    assert wrong(before=waiting, after=waiting) == ["max_remapping_troubles"]


def test_a_slow_and_a_changed_copy_are_two_findings():
    copies = {
        "device_copy": CopyReport(4290, changed=True),
        "host_to_device": CopyReport(3, changed=False),
    }
    assert wrong(copies=copies) == ["min_host_to_device_gb_per_s", "max_changed_copies"]


def test_missing_measurements_are_not_judged():
    checks = judge(Observed(), H200)
    assert [check.name for check in checks] == ["max_xids", "max_device_failures"]


def test_a_single_slow_batch_among_many_is_no_fault():
    assert wrong(compute={"bfloat16": product(*[690] * 30, 100)}) == []


def test_a_finding_says_what_is_suspect_with_limit_measurement_and_detail():
    check = Check("max_wrong_words", 2, 0, "bit 5 flipped")
    assert str(check) == "memory: max_wrong_words is 0, measured 2 (bit 5 flipped)"


def test_nan_exceeds_every_limit_that_is_judged():
    assert not Check("min_gemm_tflops", math.nan, 500).holds
    assert Check("min_gemm_tflops", math.nan, None).holds
