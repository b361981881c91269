# SPDX-License-Identifier: Apache-2.0
"""The driver's facts about one GPU at one moment; None and empty: the driver does not report it.

`grading` defines what they mean for the use of the GPU. For a GPU with MIG slices these are the
facts of the whole GPU, except those that each slice has.
"""

import dataclasses
from collections.abc import Iterable

CPU_LIST_CHARACTERS = 256
"""The largest number of characters of a CPU list in GPUNode; a NUMA node has a few ranges."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The facts that stay constant unless an administrator changes them.

    Attributes:
        pci_bus_id: domain:bus:device.function, in lower case.
        cpus: numbers of the CPUs that are near.
        compute_mode: default, exclusive_thread, prohibited or exclusive_process.
    """

    serial: str | None = None
    architecture: str | None = None
    pci_bus_id: str | None = None
    max_pcie_width: int | None = None
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    compute_mode: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The present load of a GPU or slice.

    Attributes:
        utilization_percent: part of the last sample period for which any kernel ran.
        memory_utilization_percent: part of that period for which memory was read or written.
        graphics_active_percent: part of the time since the last scan for which the graphics or
            compute engine was active.
        sm_active_percent: part of the multiprocessors that worked, on average since the last scan.
        tensor_active_percent: part of that time for which tensor cores worked.
        dram_active_percent: part of the memory bandwidth that was used.
        memory_used_bytes: used memory without the part that the driver reserves.
        throttled_by: reasons for clocks below the highest, by NVML's names (`SwPowerCap`).
        energy_joules: energy since the driver was loaded.
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
    """Error counters, `volatile` since the driver was loaded and `aggregate` over the GPU's life.

    Attributes:
        remapped_corrected, remapped_uncorrected: number of rows that were remapped for such errors.
        remap_pending: whether a row is remapped at the next reset.
        remap_failed: whether a row could not be remapped.
        pcie_replays: number of packets that were sent again.
        nvlink_crc, nvlink_replays, nvlink_recoveries: numbers of errors of all links together.
        recovery_action: the action that the driver requests; 0: none.
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
    """The connections of a GPU.

    Attributes:
        nvlinks: whether each NVLink is up, by number; None: not known. It is empty if there are no
            links, or if the state of none is known.
    """

    pcie_width: int | None = None
    nvlinks: tuple[bool | None, ...] = ()

    @property
    def down(self) -> tuple[int, ...]:
        """Return the numbers of the links that are down."""
        return tuple(number for number, up in enumerate(self.nvlinks) if up is False)


@dataclasses.dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has a context on the GPU; its PID is that of the host's namespace."""

    pid: int
    memory_bytes: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SliceFacts:
    """The facts of one MIG slice: memory, and on boards from Hopper on also its activity.

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
    """The facts of one GPU."""

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
    """Return numbers as Linux writes a list of CPUs, `0-47,96-143`; empty if it is too long."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    text = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
    return text if len(text) <= CPU_LIST_CHARACTERS else ""
