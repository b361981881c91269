# SPDX-License-Identifier: Apache-2.0
"""The reading of a GPU's facts through NVML.

Values that a driver or board does not report are left out: the errors of each call are caught
separately. Fields are read in one call, and each field has a separate return code.
"""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from gpupack_agent.inventory.facts import (
    Board,
    Errors,
    GpuFacts,
    GpuProcess,
    Links,
    Load,
    SliceFacts,
)
from gpupack_agent.inventory.gpm import Gpm

T = TypeVar("T")

MILLI: Final = 1000.0
CPUS_PER_WORD: Final = 64
MAX_CPUS: Final = 1024
MAX_LINKS: Final = 36
"""NVML_NVLINK_MAX_LINKS of the newest library; older ones refuse the higher numbers."""

ARCHITECTURES: Final = {2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing"} | {
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
"""The architectures by NVML_DEVICE_ARCH_*."""

COMPUTE_MODES: Final = {
    0: "default",
    1: "exclusive_thread",
    2: "prohibited",
    3: "exclusive_process",
}
"""The compute modes by NVML_COMPUTEMODE_*."""

THROTTLES: Final = (
    "SwPowerCap",
    "HwSlowdown",
    "SyncBoost",
    "SwThermalSlowdown",
    "HwThermalSlowdown",
    "HwPowerBrakeSlowdown",
)
"""The reasons that may need an action; others are left out: an idle GPU has low clocks, too."""

FIELDS: Final = {
    "memory_temperature_celsius": "NVML_FI_DEV_MEMORY_TEMP",
    "remapped_corrected": "NVML_FI_DEV_REMAPPED_COR",
    "remapped_uncorrected": "NVML_FI_DEV_REMAPPED_UNC",
    "remap_pending": "NVML_FI_DEV_REMAPPED_PENDING",
    "remap_failed": "NVML_FI_DEV_REMAPPED_FAILURE",
    "nvlink_crc": "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "nvlink_replays": "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "nvlink_recoveries": "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "links": "NVML_FI_DEV_NVLINK_LINK_COUNT",
    "recovery_action": "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
}

ENERGY_SECONDS: Final = 60.0
"""The time between two readings of the energy of a GPU without processes. On an H200 the reading
takes half of a scan's time, 5 ms. So the energy of an idle GPU may count up to a minute later."""

BOARD_SECONDS: Final = 60.0
"""The time between two readings of facts that only an administrator changes: compute mode, limits.
"""

VALUE_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The member of a field's value by NVML_VALUE_TYPE_*."""


class Readings:
    """The readings of one node's GPUs.

    Args:
        nvml: the module `pynvml`, or an object with its functions.
        host_root: this process's path of the host's root, for sysfs.
        now: returns monotonic seconds.
    """

    def __init__(
        self, nvml: Any, host_root: pathlib.Path, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._nvml, self._host_root = nvml, host_root
        self._gpm = Gpm(nvml)
        self._now = now
        self._energy: dict[str, tuple[float, float | None]] = {}
        """The time of the last reading and the joules, by UUID."""
        self._in_use: set[str] = set()
        """The GPUs that had processes at the last scan."""
        self._boards: dict[str, tuple[float, Board]] = {}
        """The time of the last reading and the board's facts, by UUID."""

    def facts(self, handle: Any, *, uuid: str, index: int, name: str) -> GpuFacts:
        """Read all facts of a GPU."""
        read_at, board = self._boards.get(uuid, (float("-inf"), Board()))
        if self._now() - read_at >= BOARD_SECONDS:
            board = self._board(handle)
            self._boards[uuid] = self._now(), board
        fields, processes = self._fields(handle), self._processes(handle)
        energy_joules = self._joules(uuid, handle, in_use=bool(processes))
        return GpuFacts(
            uuid=uuid,
            index=index,
            name=name,
            board=board,
            load=self._load(handle, fields, self._gpm.percents(uuid, handle), energy_joules),
            errors=self._errors(handle, fields),
            links=self._links(handle, fields),
            processes=processes,
        )

    def _board(self, handle: Any) -> Board:
        read = self._optional
        pci = read("nvmlDeviceGetPciInfo", handle)
        bus_id = _text(pci.busId)[-12:].lower() if pci is not None else None
        return Board(
            serial=_or_none(_text, read("nvmlDeviceGetSerial", handle)),
            architecture=ARCHITECTURES.get(read("nvmlDeviceGetArchitecture", handle)),
            pci_bus_id=bus_id,
            max_pcie_width=read("nvmlDeviceGetMaxPcieLinkWidth", handle),
            numa_node=self._numa_node(bus_id),
            cpus=tuple(_bits(read("nvmlDeviceGetCpuAffinity", handle, MAX_CPUS // CPUS_PER_WORD))),
            compute_mode=COMPUTE_MODES.get(read("nvmlDeviceGetComputeMode", handle)),
        )

    def slice_facts(self, gpu: Any, handle: Any, *, instance: int, profile: str) -> SliceFacts:
        """Read the facts of a MIG slice.

        Args:
            gpu: handle of its GPU.
            handle: handle of the slice.
            instance: number of its GPU instance.
            profile: name of its profile.
        """
        uuid = _text(self._nvml.nvmlDeviceGetUUID(handle))
        worked = _with_activity(self._memory(handle), self._gpm.percents(uuid, gpu, instance))
        return SliceFacts(
            uuid=uuid,
            profile=profile,
            instance=instance,
            load=worked,
            processes=self._processes(handle),
        )

    def retain(self, uuids: Collection[str]) -> None:
        """Forget the readings of all other GPUs and slices."""
        self._gpm.retain(uuids)
        self._in_use.intersection_update(uuids)
        self._energy = {uuid: read for uuid, read in self._energy.items() if uuid in uuids}
        self._boards = {uuid: read for uuid, read in self._boards.items() if uuid in uuids}

    def _joules(self, uuid: str, handle: Any, *, in_use: bool) -> float | None:
        """Return the energy in joules; None: not known.

        It is read if anything may have run since the last scan, and every ENERGY_SECONDS.
        """
        read_at, joules = self._energy.get(uuid, (float("-inf"), None))
        if in_use or uuid in self._in_use or self._now() - read_at >= ENERGY_SECONDS:
            joules = _milli(self._optional("nvmlDeviceGetTotalEnergyConsumption", handle))
            self._energy[uuid] = self._now(), joules
        if in_use:
            self._in_use.add(uuid)
        else:
            self._in_use.discard(uuid)
        return joules

    def _load(
        self,
        handle: Any,
        fields: Mapping[str, int | float],
        active: Mapping[str, float],
        energy_joules: float | None,
    ) -> Load:
        nvml, read = self._nvml, self._optional
        used = read("nvmlDeviceGetUtilizationRates", handle)
        return dataclasses.replace(
            _with_activity(self._memory(handle), active),
            utilization_percent=used.gpu if used is not None else None,
            memory_utilization_percent=used.memory if used is not None else None,
            sm_clock_mhz=read("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=read("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
            throttled_by=self._throttles(read("nvmlDeviceGetCurrentClocksEventReasons", handle)),
            power_watts=_milli(read("nvmlDeviceGetPowerUsage", handle)),
            energy_joules=energy_joules,
            temperature_celsius=read("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
            memory_temperature_celsius=_int(fields.get("memory_temperature_celsius")),
        )

    def _memory(self, handle: Any) -> Load:
        """Read the memory; version 2 of the call shows the driver's reserved part separately."""
        memory = self._optional("nvmlDeviceGetMemoryInfo", handle, self._nvml.nvmlMemory_v2)
        if memory is None:
            return Load()
        return Load(
            memory_total_bytes=memory.total,
            memory_used_bytes=memory.used,
            memory_reserved_bytes=memory.reserved,
        )

    def _errors(self, handle: Any, fields: Mapping[str, int | float]) -> Errors:
        nvml, read = self._nvml, self._optional

        def ecc(kind: int, counter: int) -> int | None:
            value: int | None = read("nvmlDeviceGetTotalEccErrors", handle, kind, counter)
            return value

        corrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
        uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        volatile, aggregate = nvml.NVML_VOLATILE_ECC, nvml.NVML_AGGREGATE_ECC
        return Errors(
            ecc_corrected_volatile=ecc(corrected, volatile),
            ecc_uncorrected_volatile=ecc(uncorrected, volatile),
            ecc_corrected_aggregate=ecc(corrected, aggregate),
            ecc_uncorrected_aggregate=ecc(uncorrected, aggregate),
            remapped_corrected=_int(fields.get("remapped_corrected")),
            remapped_uncorrected=_int(fields.get("remapped_uncorrected")),
            remap_pending=_or_none(bool, fields.get("remap_pending")),
            remap_failed=_or_none(bool, fields.get("remap_failed")),
            pcie_replays=read("nvmlDeviceGetPcieReplayCounter", handle),
            nvlink_crc=_int(fields.get("nvlink_crc")),
            nvlink_replays=_int(fields.get("nvlink_replays")),
            nvlink_recoveries=_int(fields.get("nvlink_recoveries")),
            recovery_action=_int(fields.get("recovery_action")),
        )

    def _links(self, handle: Any, fields: Mapping[str, int | float]) -> Links:
        count = min(int(fields.get("links", 0)), MAX_LINKS)
        states = [self._optional("nvmlDeviceGetNvLinkState", handle, link) for link in range(count)]
        value = tuple(None if state is None else bool(state) for state in states)
        return Links(
            pcie_width=self._optional("nvmlDeviceGetCurrPcieLinkWidth", handle),
            nvlinks=value if any(each is not None for each in value) else (),
        )

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...]:
        """Read the processes; one with several kinds of contexts has its largest figure."""
        found: dict[int, int | None] = {}
        for call in (
            "nvmlDeviceGetComputeRunningProcesses",
            "nvmlDeviceGetMPSComputeRunningProcesses",
            "nvmlDeviceGetGraphicsRunningProcesses",
        ):
            for process in self._optional(call, handle) or ():
                value, before = process.usedGpuMemory, found.get(process.pid)
                found[process.pid] = before if value is None else max(value, before or 0)
        return tuple(GpuProcess(pid, memory) for pid, memory in sorted(found.items()))

    def _throttles(self, mask: int | None) -> frozenset[str]:
        names = THROTTLES if mask else ()
        bits = {name: getattr(self._nvml, f"nvmlClocksEventReason{name}") for name in names}
        return frozenset(name for name, bit in bits.items() if mask and mask & bit)

    def _fields(self, handle: Any) -> dict[str, int | float]:
        ids = [getattr(self._nvml, name) for name in FIELDS.values()]
        values = self._optional("nvmlDeviceGetFieldValues", handle, ids) or ()
        return {
            name: getattr(value.value, VALUE_MEMBERS[value.valueType])
            for name, value in zip(FIELDS, values, strict=False)
            if value.nvmlReturn == self._nvml.NVML_SUCCESS
        }

    def _numa_node(self, bus_id: str | None) -> int | None:
        """Read the NUMA node from sysfs: common boards (such as H200) do not support NVML's."""
        if bus_id is None:
            return None
        path = self._host_root / "sys/bus/pci/devices" / bus_id / "numa_node"
        try:
            node = int(path.read_text())
        except (OSError, ValueError):
            return None
        return node if node >= 0 else None

    def _optional(self, name: str, *arguments: Any) -> Any:
        """Call a function that not every driver or board supports; None: no value."""
        try:
            return getattr(self._nvml, name)(*arguments)
        except self._nvml.NVMLError:
            return None


def _with_activity(load: Load, active: Mapping[str, float]) -> Load:
    return dataclasses.replace(
        load,
        graphics_active_percent=active.get("NVML_GPM_METRIC_GRAPHICS_UTIL"),
        sm_active_percent=active.get("NVML_GPM_METRIC_SM_UTIL"),
        tensor_active_percent=active.get("NVML_GPM_METRIC_ANY_TENSOR_UTIL"),
        dram_active_percent=active.get("NVML_GPM_METRIC_DRAM_BW_UTIL"),
    )


def _bits(words: Iterable[int] | None) -> Iterable[int]:
    for position, word in enumerate(words or ()):
        for bit in range(CPUS_PER_WORD):
            if word >> bit & 1:
                yield position * CPUS_PER_WORD + bit


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)


def _milli(value: int | None) -> float | None:
    return None if value is None else value / MILLI


def _or_none(make: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else make(value)
