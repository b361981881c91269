# SPDX-License-Identifier: Apache-2.0
"""Reads temperature, power, clocks and error counters of a GPU through NVML; it sets nothing.

Values that a driver or a board does not have are left out and not judged. Without the library
(nvidia-ml-py) or the driver's side of it there are no readings at all, and the result says so.
"""

import contextlib
import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
Counters = dict[str, int]

MILLI = 1000
# What applications do wrong (13, 31, 43, 45, 68, 109) is no fault of the GPU.
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})


@dataclass(frozen=True)
class Slowdowns:
    """Current reasons for reduced clocks; the power cap is not a fault."""

    heat: bool
    board: bool


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One reading under load; None if the driver does not report it."""

    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    power_watts: float | None = None
    sm_clock_mhz: int | None = None
    clock_ratio: float | None = None
    power_capped: bool | None = None
    slowdowns: Slowdowns | None = None


class Sensors(Protocol):
    """Interface to a GPU's readings.

    Attributes:
        source: where the readings come from, or why there are none.
    """

    source: str

    def sample(self) -> Sample | None:
        """Read what changes from moment to moment."""

    def counters(self) -> Counters:
        """Read what counts up, and the states of repair."""

    def xids(self) -> list[int]:
        """Return the XIDs that were raised since the last call."""


class NoSensors:
    """No readings."""

    def __init__(self, why: str) -> None:
        self.source = f"none: {why}"

    def sample(self) -> Sample | None:
        """Read nothing."""
        return None

    def counters(self) -> Counters:
        """Read nothing."""
        return {}

    def xids(self) -> list[int]:
        """Read nothing."""
        return []


def open_sensors(uuid: str) -> Sensors:
    """Return the sensors of a GPU, or none and why."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return NoSensors("the Python package nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
        return NvmlSensors(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))
    except nvml.NVMLError as error:
        return NoSensors(f"NVML: {error}")


class NvmlSensors:
    """Readings by NVML.

    Args:
        nvml: the module `pynvml`, or anything with its functions.
        handle: NVML's of the GPU.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._events = self._listen()
        self.source = f"NVML, driver {self._read_optional(nvml.nvmlSystemGetDriverVersion)}"

    def sample(self) -> Sample:
        """Read what changes from moment to moment."""
        nvml = self._nvml
        power = self._of_gpu("nvmlDeviceGetPowerUsage")
        clock = self._of_gpu("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)
        highest = self._of_gpu("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM)
        reasons = self._of_gpu("nvmlDeviceGetCurrentClocksThrottleReasons")
        return Sample(
            temperature_c=self._of_gpu("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            memory_temperature_c=self._field(nvml.NVML_FI_DEV_MEMORY_TEMP),
            power_watts=None if power is None else power / MILLI,
            sm_clock_mhz=clock,
            clock_ratio=clock / highest if clock and highest else None,
            power_capped=self._has(reasons, "SwPowerCap"),
            slowdowns=None if reasons is None else self._slowdowns(reasons),
        )

    def counters(self) -> Counters:
        """Read what counts up since the driver was loaded, and the states of repair."""
        nvml = self._nvml
        volatile = nvml.NVML_VOLATILE_ECC
        counted: dict[str, int | None] = {
            "corrected_ecc_errors": self._of_gpu(
                "nvmlDeviceGetTotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, volatile
            ),
            "uncorrected_ecc_errors": self._of_gpu(
                "nvmlDeviceGetTotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, volatile
            ),
            "pcie_replays": self._of_gpu("nvmlDeviceGetPcieReplayCounter"),
            "recovery_action": self._field(nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
        }
        if (rows := self._of_gpu("nvmlDeviceGetRemappedRows")) is not None:
            _, uncorrectable, pending, failed = rows
            counted |= {
                "remapped_rows": uncorrectable,
                "remapping_troubles": int(bool(pending)) + int(bool(failed)),
            }
        return {name: count for name, count in counted.items() if count is not None}

    def xids(self) -> list[int]:
        """Return the XIDs since the last call that no application causes."""
        raised: list[int] = []
        while self._events is not None:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError:
                # A time-out: nothing more has come.
                break
            raised.append(int(event.eventData))
        return [xid for xid in raised if xid not in APPLICATION_XIDS]

    def _listen(self) -> Any:
        """Ask the driver to keep this GPU's XIDs for us; nothing where it does not."""
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError):
            events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(self._handle, nvml.nvmlEventTypeXidCriticalError, events)
            return events
        return None

    def _slowdowns(self, reasons: int) -> Slowdowns:
        heat = ("SwThermalSlowdown", "HwThermalSlowdown")
        board = ("HwSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")
        return Slowdowns(
            heat=any(self._has(reasons, name) for name in heat),
            board=any(self._has(reasons, name) for name in board),
        )

    def _has(self, reasons: int | None, name: str) -> bool | None:
        if reasons is None:
            return None
        return bool(reasons & getattr(self._nvml, f"nvmlClocksThrottleReason{name}"))

    def _field(self, field: int) -> int | None:
        values = self._of_gpu("nvmlDeviceGetFieldValues", [field])
        if values is None or values[0].nvmlReturn != self._nvml.NVML_SUCCESS:
            return None
        value: int = values[0].value.uiVal
        return value

    def _of_gpu(self, function: str, *arguments: Any) -> Any:
        return self._read_optional(getattr(self._nvml, function), self._handle, *arguments)

    def _read_optional(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """Read a value that not every driver or board has; None if it does not."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None
