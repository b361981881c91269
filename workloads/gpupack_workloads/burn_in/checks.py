# SPDX-License-Identifier: Apache-2.0
"""Compares measurements with their limits. Pure: observations in, faults out."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpupack_workloads.burn_in.limits import LIMITS, Kind, Limits
from gpupack_workloads.burn_in.sensors import Counters, Sample

SPEEDS = (
    "min_gemm_tflops",
    "min_device_copy_gb_per_s",
    "min_host_to_device_gb_per_s",
    "min_device_to_host_gb_per_s",
)


@dataclass(frozen=True)
class Check:
    """One measurement and its limit.

    Attributes:
        name: name of the limit.
        measured: in the unit that the name says.
        limit: None is not judged.
        detail: description, if a number is not enough.
    """

    name: str
    measured: float
    limit: float | None
    detail: str = ""

    @property
    def kind(self) -> Kind:
        """Which part of the GPU is suspect where this does not hold."""
        return LIMITS[self.name].kind

    @property
    def holds(self) -> bool:
        """Whether this is healthy; what is no number never is."""
        if self.limit is None:
            return True
        if math.isnan(self.measured):
            return False
        if self.name.startswith("min_"):
            return self.measured >= self.limit
        return self.measured <= self.limit

    def __str__(self) -> str:
        finding = f"{self.kind}: {self.name} is {self.limit:g}, measured {self.measured:.6g}"
        return f"{finding} ({self.detail})" if self.detail else finding


@dataclass(frozen=True)
class MemoryReport:
    """Findings of the memory test.

    Attributes:
        tested_bytes: how much of it was written and read back.
        passes: how often.
        wrong_words: 64-bit words that came back changed, over all passes.
        detail: the first ones: pattern, place, bits.
    """

    tested_bytes: int
    passes: int
    wrong_words: int
    detail: str = ""


@dataclass(frozen=True)
class ComputeReport:
    """Findings of one kind of product.

    Attributes:
        products: how many were computed.
        wrong_products: those that differ from the first one, and the first one if it is wrong.
        residual: how far the first one is from its column sums, and
        bound: how much of that rounding explains.
        tflops: speed of each batch of products.
        detail: what differed first.
    """

    products: int
    wrong_products: int
    residual: float
    bound: float
    tflops: tuple[float, ...]
    detail: str = ""


@dataclass(frozen=True)
class CopyReport:
    """Bandwidth of one direction, and whether the copied bytes are right."""

    gb_per_s: float
    changed: bool


@dataclass(kw_only=True)
class Observed:
    """All observations of a run; an aborted run has only some of them.

    Attributes:
        memory: none where no memory was tested.
        compute: by type of the numbers; the first is the one whose speed is judged.
        copies: by direction: device_copy, host_to_device, device_to_host.
        before: error counters at the start.
        after: error counters at the end.
        samples: readings under load.
        xids: raised during the run.
        failure: the CUDA error that ended the run, or nothing.
    """

    memory: MemoryReport | None = None
    compute: dict[str, ComputeReport] = field(default_factory=dict)
    copies: dict[str, CopyReport] = field(default_factory=dict)
    before: Counters = field(default_factory=dict)
    after: Counters = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    xids: list[int] = field(default_factory=list)
    failure: str = ""


def judge(observed: Observed, limits: Limits) -> list[Check]:
    """Return a check for everything that was measured."""
    details = _details(observed)
    return [
        Check(name, value, limits[name], details.get(name, ""))
        for name, value in _measurements(observed).items()
    ]


def speeds_of(observed: Observed) -> dict[str, float]:
    """Return the measurements that distinguish a slow GPU from others of its model."""
    measured = _measurements(observed)
    return {name: measured[name] for name in SPEEDS if name in measured}


def findings(checks: Sequence[Check]) -> list[Check]:
    """Return what is not healthy."""
    return [check for check in checks if not check.holds]


def _measurements(observed: Observed) -> dict[str, float]:
    """Return a number for each limit that can be judged."""
    return (
        _of_memory(observed.memory)
        | _of_compute(observed.compute)
        | _of_copies(observed.copies)
        | _of_samples(observed.samples)
        | _of_counters(observed.before, observed.after)
        | {"max_xids": len(observed.xids), "max_device_failures": int(bool(observed.failure))}
    )


def _details(observed: Observed) -> dict[str, str]:
    wrong = [f"{name}: {report.detail}" for name, report in observed.compute.items()]
    changed = [name for name, report in observed.copies.items() if report.changed]
    return {
        "max_wrong_words": observed.memory.detail if observed.memory else "",
        "max_wrong_products": "; ".join(text for text in wrong if not text.endswith(": ")),
        "max_changed_copies": ", ".join(changed),
        "max_xids": ", ".join(map(str, observed.xids)),
        "max_device_failures": observed.failure,
    }


def _of_memory(report: MemoryReport | None) -> dict[str, float]:
    return {} if report is None else {"max_wrong_words": report.wrong_words}


def _of_compute(reports: Mapping[str, ComputeReport]) -> dict[str, float]:
    if not reports:
        return {}
    first = next(iter(reports.values()))
    wrong = sum(report.wrong_products for report in reports.values())
    measured: dict[str, float] = {"max_wrong_products": wrong}
    if first.tflops:
        median = statistics.median(first.tflops)
        measured |= {"min_gemm_tflops": median, "min_steady_ratio": _slowest(first.tflops) / median}
    return measured


def _slowest(speeds: Sequence[float]) -> float:
    """Return the speed that nine tenths exceed: a single hiccup is none of the GPU's."""
    return sorted(speeds)[len(speeds) // 10]


def _of_copies(reports: Mapping[str, CopyReport]) -> dict[str, float]:
    if not reports:
        return {}
    speeds = {f"min_{name}_gb_per_s": report.gb_per_s for name, report in reports.items()}
    return speeds | {"max_changed_copies": sum(report.changed for report in reports.values())}


def _of_samples(samples: Sequence[Sample]) -> dict[str, float]:
    measured: dict[str, float] = {}
    if hot := [sample.temperature_c for sample in samples if sample.temperature_c is not None]:
        measured["max_temperature_c"] = max(hot)
    if hot := [each.memory_temperature_c for each in samples if each.memory_temperature_c]:
        measured["max_memory_temperature_c"] = max(hot)
    if slowed := [sample.slowdowns for sample in samples if sample.slowdowns is not None]:
        measured["max_thermal_slowdown_ratio"] = statistics.mean(each.heat for each in slowed)
        measured["max_hardware_slowdown_ratio"] = statistics.mean(each.board for each in slowed)
    if clocks := [each.clock_ratio for each in samples if each.clock_ratio is not None]:
        measured["min_sm_clock_ratio"] = statistics.median(clocks)
    return measured


def _of_counters(before: Counters, after: Counters) -> dict[str, float]:
    """Return what was added; a state counts as it is at the end, also if it was so before."""
    measured: dict[str, float] = {
        f"max_{name}": after[name] - before[name]
        for name in ("uncorrected_ecc_errors", "corrected_ecc_errors", "remapped_rows")
        if name in before and name in after
    }
    if "pcie_replays" in before and "pcie_replays" in after:
        measured["max_pcie_replays"] = after["pcie_replays"] - before["pcie_replays"]
    for name in ("remapping_troubles", "recovery_action"):
        if name in after:
            measured[f"max_{name}"] = after[name]
    return measured
