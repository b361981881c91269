# SPDX-License-Identifier: Apache-2.0
"""Facts about a device with names and units, and whether their sources agree."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpupack_workloads.results import Scalar

Facts = dict[str, Scalar]

KIB = 1024
KHZ_PER_MHZ = 1000
PLACE = ("domain", "bus", "device")
ATTRIBUTE = "CU_DEVICE_ATTRIBUTE_"


@dataclass(frozen=True)
class Shown:
    """A fact from one of the driver's attributes.

    Attributes:
        name: with its unit.
        attribute: as cuda.h has it, in lower case and without CU_DEVICE_ATTRIBUTE_.
        per: so many of the driver's units are one of the fact's.
        flag: whether it is true or false.
    """

    name: str
    attribute: str
    per: int = 1
    flag: bool = False

    def of(self, attributes: Mapping[str, int]) -> Scalar:
        """Return the fact."""
        value = attributes[self.attribute]
        return bool(value) if self.flag else value // self.per


SHOWN = (
    Shown("multiprocessors", "multiprocessor_count"),
    Shown("clock_mhz", "clock_rate", KHZ_PER_MHZ),
    Shown("memory_clock_mhz", "memory_clock_rate", KHZ_PER_MHZ),
    Shown("memory_bus_bits", "global_memory_bus_width"),
    Shown("l2_kib", "l2_cache_size", KIB),
    Shown("constant_memory_kib", "total_constant_memory", KIB),
    Shown("shared_kib_per_block", "max_shared_memory_per_block", KIB),
    Shown("shared_kib_per_block_optin", "max_shared_memory_per_block_optin", KIB),
    Shown("shared_kib_per_multiprocessor", "max_shared_memory_per_multiprocessor", KIB),
    Shown("registers_per_block", "max_registers_per_block"),
    Shown("registers_per_multiprocessor", "max_registers_per_multiprocessor"),
    Shown("warp_size", "warp_size"),
    Shown("threads_per_block", "max_threads_per_block"),
    Shown("threads_per_multiprocessor", "max_threads_per_multiprocessor"),
    Shown("blocks_per_multiprocessor", "max_blocks_per_multiprocessor"),
    Shown("copy_engines", "async_engine_count"),
    Shown("ecc", "ecc_enabled", flag=True),
    Shown("unified_addressing", "unified_addressing", flag=True),
    Shown("managed_memory", "managed_memory", flag=True),
    Shown("concurrent_kernels", "concurrent_kernels", flag=True),
    Shown("cooperative_launch", "cooperative_launch", flag=True),
    Shown("cluster_launch", "cluster_launch", flag=True),
    Shown("memory_pools", "memory_pools_supported", flag=True),
)


def attribute_name(member: str) -> str:
    """Return the short name of a member of CUdevice_attribute."""
    return member.removeprefix(ATTRIBUTE).lower()


def pci_address(domain: int, bus: int, device: int) -> str:
    """Return where a device is, as lspci writes it."""
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def listed(access: Mapping[tuple[int, int], bool], reader: int, count: int) -> str:
    """Return the devices whose memory a device can access, such as 1,2,3."""
    return ",".join(str(owner) for owner in range(count) if access.get((reader, owner)))


def shown(attributes: Mapping[str, int]) -> Facts:
    """Return the facts of the attributes that this driver knows."""
    facts = {fact.name: fact.of(attributes) for fact in SHOWN if fact.attribute in attributes}
    facts["compute_capability"] = "{compute_capability_major}.{compute_capability_minor}".format(
        **attributes
    )
    facts["pci_address"] = pci_address(*(attributes[f"pci_{part}_id"] for part in PLACE))
    return facts


def disagreements(sources: Mapping[str, Mapping[str, Scalar]]) -> list[str]:
    """Return a sentence for each fact about which sources differ."""
    values: dict[str, dict[str, Scalar]] = {}
    for source, facts in sources.items():
        for name, value in facts.items():
            values.setdefault(name, {})[source] = value
    return [
        f"{name} is " + ", ".join(f"{value} by {source}" for source, value in by_source.items())
        for name, by_source in values.items()
        if len(set(by_source.values())) > 1
    ]


def agreed(sources: Mapping[str, Mapping[str, Scalar]]) -> int:
    """Count the facts that two sources or more report."""
    names = [name for facts in sources.values() for name in facts]
    return sum(names.count(name) > 1 for name in set(names))


def cpus_of_list(text: str) -> set[int]:
    """Return the CPUs of a list as the kernel writes it, such as 0-3,8."""
    ends = [part.split("-") for part in text.strip().split(",")]
    return {cpu for end in ends for cpu in range(int(end[0]), int(end[-1]) + 1)}


def lines(facts: Facts) -> str:
    """Write a device's facts as a table of names and values, as deviceQuery does."""
    width = max(map(len, facts))
    return "\n".join(f"  {name:{width}}  {value}" for name, value in facts.items())


def matrix(access: Mapping[tuple[int, int], bool], count: int) -> str:
    """Write which device reaches which other's memory: a row per reader, a column per owner."""
    cell = {True: "yes", False: "no"}
    rows = [["", *map(str, range(count))]]
    for reader in range(count):
        owners = ["-" if reader == owner else cell[access[reader, owner]] for owner in range(count)]
        rows.append([str(reader), *owners])
    return "\n".join("  " + "".join(f"{value:>5}" for value in row) for row in rows)
