# SPDX-License-Identifier: Apache-2.0
"""Bridges of the PCI bus that send traffic between GPUs up to the CPU (ACS).

A device's configuration space is read from sysfs: root reads it whole, everybody else its first 64
bytes, which do not tell.
"""

import re
import struct
from typing import Final

from gpupack_agent.host_files import Root

DEVICES: Final = "/sys/bus/pci/devices"
ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
EXTENDED: Final = 0x100
"""Where extended capabilities begin; a header there has id, version and the place of the next."""
SPACE: Final = 4096
ACS: Final = 0x000D
CONTROL: Final = 6
"""Offset of ACS' control register."""
REDIRECTS: Final = 0x04 | 0x08
"""P2P Request Redirect and P2P Completion Redirect of that register."""


def redirecting_bridges(root: Root, address: str) -> tuple[str, ...]:
    """Addresses of the bridges above a device that redirect, as far as we may read them."""
    found = root.find(f"{DEVICES}/{address}")
    above = [part for part in found.parts if ADDRESS.fullmatch(part)] if found is not None else []
    return tuple(
        bridge
        for bridge in above
        if bridge != address and redirects(root.binary(f"{DEVICES}/{bridge}/config") or b"")
    )


def redirects(space: bytes) -> bool:
    """Whether a configuration space says so; one that is cut off does not."""
    place, seen = EXTENDED, set[int]()
    while EXTENDED <= place <= min(len(space), SPACE) - 4 and place not in seen:
        seen.add(place)
        (header,) = struct.unpack_from("<I", space, place)
        if header & 0xFFFF == ACS and place + CONTROL + 2 <= len(space):
            (control,) = struct.unpack_from("<H", space, place + CONTROL)
            return bool(control & REDIRECTS)
        place = header >> 20 & ~3
    return False
