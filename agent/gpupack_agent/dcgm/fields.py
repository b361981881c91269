# SPDX-License-Identifier: Apache-2.0
"""The table of the source that counts for each fact of a GPU.

A fact that the driver itself reports takes precedence: the driver is queried at each scan, while
the exporter's figure can be as old as the exporter's interval. The exporter adds the facts that the
driver does not report. XIDs count from both, because neither sees those from before its start. So a
wrong or failed exporter only affects facts that the driver does not report. It improves no GPU's
grade, which depends on these facts alone: it can only add causes.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

from gpupack_agent.inventory.base import Findings
from gpupack_agent.inventory.facts import GpuFacts
from gpupack_crds.devices import BYTES_PER_MIB

Figures = Mapping[str, Mapping[str, float]]
"""The figures of an exporter, by UUID, then by DCGM's name of the field."""

Source = Literal["NVML, else DCGM", "both"]
MAX_FIGURE: Final = 2.0**63


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One row of the table.

    Attributes:
        fact: the fact of `inventory.facts`, as part.name; `xids` is a part of the findings.
        dcgm: DCGM's name of the field, as the exporter shows it.
        source: the source that counts.
        why: the reason for this choice.
        maximum: the largest valid figure; larger ones are ignored.
        convert: converts from DCGM's unit to the unit of the fact.
    """

    fact: str
    dcgm: str
    source: Source
    why: str
    maximum: float
    convert: Callable[[float], Any]


def _row(
    fact: str,
    dcgm: str,
    why: str,
    convert: Callable[[float], Any] = int,
    maximum: float = MAX_FIGURE,
) -> Field:
    return Field(fact, f"DCGM_FI_{dcgm}", "NVML, else DCGM", why, maximum, convert)


def _percent(ratio: float) -> float:
    return 100 * ratio


def _bytes(mebibytes: float) -> int:
    return int(mebibytes * BYTES_PER_MIB)


def _joules(millijoules: float) -> float:
    return millijoules / 1000


_PROFILED: Final = (
    "NVML covers the time between two scans; boards before Hopper have no such figure"
)
_NOW: Final = "NVML is queried at the scan; the exporter's figure is up to 30 s old"
_COUNTED: Final = "both show the same counter of the driver; NVML's value is newer"
_HEALTH: Final = "it decides a grade, so the driver itself takes precedence"

FIELDS: Final[tuple[Field, ...]] = (
    Field(
        "xids",
        "DCGM_FI_DEV_XID_ERRORS",
        "both",
        "a listener gets no events from before its start; the exporter shows the last one",
        1023,
        int,
    ),
    _row("load.graphics_active_percent", "PROF_GR_ENGINE_ACTIVE", _PROFILED, _percent, 1),
    _row("load.sm_active_percent", "PROF_SM_ACTIVE", _PROFILED, _percent, 1),
    _row("load.tensor_active_percent", "PROF_PIPE_TENSOR_ACTIVE", _PROFILED, _percent, 1),
    _row("load.dram_active_percent", "PROF_DRAM_ACTIVE", _PROFILED, _percent, 1),
    _row("load.utilization_percent", "DEV_GPU_UTIL", _NOW, maximum=100),
    _row("load.memory_utilization_percent", "DEV_MEM_COPY_UTIL", _NOW, maximum=100),
    _row("load.memory_used_bytes", "DEV_FB_USED", _NOW, _bytes, 2**24),
    _row("load.memory_reserved_bytes", "DEV_FB_RESERVED", _NOW, _bytes, 2**24),
    _row("load.sm_clock_mhz", "DEV_SM_CLOCK", _NOW, maximum=100_000),
    _row("load.memory_clock_mhz", "DEV_MEM_CLOCK", _NOW, maximum=100_000),
    _row("load.power_watts", "DEV_POWER_USAGE", _NOW, float, 100_000),
    _row("load.temperature_celsius", "DEV_GPU_TEMP", _NOW, maximum=1000),
    _row("load.memory_temperature_celsius", "DEV_MEMORY_TEMP", _NOW, maximum=1000),
    _row("load.energy_joules", "DEV_TOTAL_ENERGY_CONSUMPTION", _COUNTED, _joules),
    _row("errors.ecc_corrected_volatile", "DEV_ECC_SBE_VOL_TOTAL", _COUNTED),
    _row("errors.ecc_uncorrected_volatile", "DEV_ECC_DBE_VOL_TOTAL", _HEALTH),
    _row("errors.ecc_corrected_aggregate", "DEV_ECC_SBE_AGG_TOTAL", _COUNTED),
    _row("errors.ecc_uncorrected_aggregate", "DEV_ECC_DBE_AGG_TOTAL", _COUNTED),
    _row("errors.remapped_corrected", "DEV_CORRECTABLE_REMAPPED_ROWS", _COUNTED),
    _row("errors.remapped_uncorrected", "DEV_UNCORRECTABLE_REMAPPED_ROWS", _COUNTED),
    _row("errors.remap_pending", "DEV_ROW_REMAP_PENDING", _HEALTH, bool, 1),
    _row("errors.remap_failed", "DEV_ROW_REMAP_FAILURE", _HEALTH, bool, 1),
    _row("errors.pcie_replays", "DEV_PCIE_REPLAY_COUNTER", _COUNTED),
    _row("errors.nvlink_crc", "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", _COUNTED),
    _row("errors.nvlink_replays", "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", _COUNTED),
    _row("errors.nvlink_recoveries", "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", _COUNTED),
)

XIDS: Final = FIELDS[0]
NAMES: Final = frozenset(field.dcgm for field in FIELDS)


def merge(findings: Findings, figures_by_gpu: Figures, ignored_xids: Mapping[str, int]) -> Findings:
    """Return the findings of a scan with the exporter's additions.

    Args:
        findings: the driver's findings; GPUs that are not in them are not added.
        figures_by_gpu: the exporter's figures.
        ignored_xids: the XID that the exporter showed when the GPU was repaired, by UUID.
    """
    if not figures_by_gpu:
        return findings
    facts = tuple(
        _add_missing_facts(gpu, figures_by_gpu.get(gpu.uuid, {})) for gpu in findings.facts
    )
    xids = dict(findings.xids)
    for uuid, figures in figures_by_gpu.items():
        number = _value(XIDS, figures)
        if number is not None and number != ignored_xids.get(uuid):
            xids[uuid] = (*xids.get(uuid, ()), number)
    return dataclasses.replace(findings, facts=facts, xids=xids)


def _add_missing_facts(gpu: GpuFacts, figures: Mapping[str, float]) -> GpuFacts:
    parts: dict[str, dict[str, Any]] = {"load": {}, "errors": {}}
    for field in FIELDS:
        part, _, name = field.fact.partition(".")
        if part in parts and getattr(getattr(gpu, part), name) is None:
            value = _value(field, figures)
            if value is not None:
                parts[part][name] = value
    return dataclasses.replace(
        gpu,
        load=dataclasses.replace(gpu.load, **parts["load"]),
        errors=dataclasses.replace(gpu.errors, **parts["errors"]),
    )


def _value(field: Field, figures: Mapping[str, float]) -> Any:
    value = figures.get(field.dcgm)
    return None if value is None or value > field.maximum else field.convert(value)


def render_table() -> str:
    """Return the table in Markdown, as in docs/dcgm.md."""
    return "\n".join(_table_lines())


def _table_lines() -> Iterator[str]:
    yield "| fact | DCGM's field | which counts | why |"
    yield "|---|---|---|---|"
    for field in FIELDS:
        yield f"| `{field.fact}` | `{field.dcgm}` | {field.source} | {field.why} |"
