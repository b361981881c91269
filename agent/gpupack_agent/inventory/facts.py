# SPDX-License-Identifier: Apache-2.0
"""What the driver tells about one GPU at one moment; None and empty where it does not tell.

Facts alone: what they mean for handing the GPU out `health` says. Of a GPU that is cut into MIG
slices these are the whole GPU's, but for those that its slices have of their own.
"""

import dataclasses
from collections.abc import Iterable

CPU_LIST_CHARACTERS = 256
"""As many as GPUNode takes: those of a NUMA node are a few ranges."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What stays, unless an administrator changes it.

    Attributes:
        compute_capability: as 9.0.
        pci_bus_id: domain:bus:device.function, in lower case.
        cpus: which are near, by number.
        compute_mode: default, exclusive_thread, prohibited or exclusive_process.
    """

    serial: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    pci_bus_id: str | None = None
    pcie_generation_most: int | None = None
    pcie_width_most: int | None = None
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    compute_mode: str | None = None
    ecc_enabled: bool | None = None
    power_limit_watts: float | None = None
    slowdown_celsius: int | None = None
    sm_clock_most_mhz: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How it is used.

    Attributes:
        utilization_percent: part of the last sample's time for which any kernel ran.
        memory_utilization_percent: the same of reads and writes of its memory.
        graphics_active_percent: for which part of the time since the last scan its graphics or
            compute engine was active.
        sm_active_percent: how many of its multiprocessors worked, on average since the last scan.
        tensor_active_percent: for which part of that time their tensor cores worked.
        dram_active_percent: which part of its memory's bandwidth was used.
        memory_used_bytes: without what the driver keeps for itself.
        throttled_by: reasons for clocks below the highest, by NVML's names (`SwPowerCap`).
        energy_joules: since the driver was loaded.
    """

    utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    graphics_active_percent: float | None = None
    sm_active_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttled_by: frozenset[str] = frozenset()
    power_watts: float | None = None
    energy_joules: float | None = None
    temperature_celsius: int | None = None
    memory_temperature_celsius: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Counters, `volatile` since the driver was loaded and `aggregate` in its life.

    Attributes:
        remapped_corrected, remapped_uncorrected: rows that were replaced for such errors.
        remap_pending: a row is replaced at the next reset.
        remap_failed: a row could not be replaced.
        pcie_replays: packets that were sent again.
        nvlink_crc, nvlink_replays, nvlink_recoveries: of all links.
        recovery_action: what the driver asks for; 0: nothing.
    """

    ecc_corrected_volatile: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    remapped_corrected: int | None = None
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    pcie_replays: int | None = None
    nvlink_crc: int | None = None
    nvlink_replays: int | None = None
    nvlink_recoveries: int | None = None
    recovery_action: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What it is connected by.

    Attributes:
        nvlinks: which of its links are up, by number, None where the driver does not tell; empty
            where it has none, or it tells of none.
    """

    pcie_generation: int | None = None
    pcie_width: int | None = None
    nvlinks: tuple[bool | None, ...] = ()

    @property
    def down(self) -> tuple[int, ...]:
        """Numbers of the links that are."""
        return tuple(number for number, up in enumerate(self.nvlinks) if up is False)


@dataclasses.dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has a context on the GPU; the PID is the host's."""

    pid: int
    memory_bytes: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SliceFacts:
    """Of one MIG slice: memory, and on boards from Hopper on what worked.

    Attributes:
        instance: number of its GPU instance.
    """

    uuid: str
    profile: str
    instance: int
    load: Load = Load()
    processes: tuple[GpuProcess, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """Of one GPU."""

    uuid: str
    index: int
    name: str
    board: Board = Board()
    load: Load = Load()
    errors: Errors = Errors()
    links: Links = Links()
    processes: tuple[GpuProcess, ...] = ()
    slices: tuple[SliceFacts, ...] = ()


def cpu_list(cpus: Iterable[int]) -> str:
    """Numbers as Linux writes a list of CPUs, `0-47,96-143`; empty where that is too long."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    text = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
    return text if len(text) <= CPU_LIST_CHARACTERS else ""
