# SPDX-License-Identifier: Apache-2.0
"""Result of a burn-in: the verdict, the figures behind it, and each check as a row."""

import statistics
from collections.abc import Sequence

from gpupack_workloads.burn_in.checks import Check, Observed, findings
from gpupack_workloads.burn_in.limits import Basis
from gpupack_workloads.burn_in.sensors import Sample
from gpupack_workloads.devices import Device, describe
from gpupack_workloads.memory import GIB
from gpupack_workloads.results import Result, Scalar, headline

CONTENT_CHECKS = ("max_wrong_words", "max_wrong_products", "max_changed_copies")
"""Checks of the contents of computations, memory and copies."""
LONGEST_TEXT = 1500


def summarise(
    device: Device,
    observed: Observed,
    checks: Sequence[Check],
    *,
    basis: Basis,
    sensors: str,
    seconds: float,
) -> Result:
    """Make the result out of what was seen; `verified` says that no bit was wrong."""
    wrong = findings(checks)
    metrics: dict[str, Scalar] = {
        "healthy": not wrong,
        "findings": "; ".join(map(str, wrong))[:LONGEST_TEXT],
        "suspect": ",".join(dict.fromkeys(check.kind for check in wrong)),
        "seconds": round(seconds, 1),
        "speed_limits": basis,
    }
    metrics |= _of_compute(observed) | _of_copies(observed) | _of_memory(observed)
    metrics |= _of_samples(observed.samples) | {"sensors": sensors}
    unknown = [] if device.simulated or basis != "unjudged" else ["speed unjudged"]
    unknown += [] if observed.samples or device.simulated else ["sensors not read"]
    right = {check.name for check in checks if check.measured == 0}
    return Result(
        workload="burn-in",
        headline=headline(_headline(wrong, metrics, unknown), simulated=device.simulated),
        verified=right.issuperset(CONTENT_CHECKS),
        simulated=device.simulated,
        metrics=metrics | describe(device),
        rows=[_row(check) for check in checks],
    )


def _headline(wrong: Sequence[Check], metrics: dict[str, Scalar], unknown: Sequence[str]) -> str:
    if wrong:
        return f"unhealthy: {metrics['suspect']}"
    return ", ".join(["healthy", f"{metrics['gemm_tflops']} TFLOP/s", *unknown])


def _row(check: Check) -> dict[str, Scalar]:
    row: dict[str, Scalar] = {
        "check": check.name,
        "kind": check.kind,
        "measured": round(check.measured, 4),
        "holds": check.holds,
    }
    if check.limit is not None:
        row["limit"] = check.limit
    return row | ({"detail": check.detail} if check.detail else {})


def _of_compute(observed: Observed) -> dict[str, Scalar]:
    metrics: dict[str, Scalar] = {}
    for name, report in observed.compute.items():
        if report.tflops:
            metrics[f"{name}_tflops"] = round(statistics.median(report.tflops), 2)
        metrics[f"{name}_products"] = report.products
        metrics[f"{name}_error"] = report.residual
        metrics[f"{name}_error_bound"] = report.bound
    speeds = [report.tflops for report in observed.compute.values()]
    first: dict[str, Scalar] = {}
    if speeds and speeds[0]:
        first["gemm_tflops"] = round(statistics.median(speeds[0]), 2)
    wrong = sum(report.wrong_products for report in observed.compute.values())
    return first | metrics | {"wrong_products": wrong}


def _of_copies(observed: Observed) -> dict[str, Scalar]:
    return {
        f"{name}_gb_per_s": round(report.gb_per_s, 1) for name, report in observed.copies.items()
    }


def _of_memory(observed: Observed) -> dict[str, Scalar]:
    if observed.memory is None:
        return {}
    return {
        "tested_gib": round(observed.memory.tested_bytes / GIB, 3),
        "memory_passes": observed.memory.passes,
        "wrong_words": observed.memory.wrong_words,
    }


def _of_samples(samples: Sequence[Sample]) -> dict[str, Scalar]:
    """Return extremes of what was read under load."""
    metrics: dict[str, Scalar] = {"readings": len(samples)}
    if hot := [sample.temperature_c for sample in samples if sample.temperature_c is not None]:
        metrics["temperature_c"] = max(hot)
    if hot := [each.memory_temperature_c for each in samples if each.memory_temperature_c]:
        metrics["memory_temperature_c"] = max(hot)
    if power := [sample.power_watts for sample in samples if sample.power_watts is not None]:
        metrics["power_watts"] = round(max(power), 1)
    if clocks := [sample.sm_clock_mhz for sample in samples if sample.sm_clock_mhz is not None]:
        metrics["sm_clock_mhz"] = statistics.median_low(clocks)
    if capped := [sample.power_capped for sample in samples if sample.power_capped is not None]:
        metrics["power_capped_ratio"] = round(statistics.mean(capped), 3)
    return metrics
