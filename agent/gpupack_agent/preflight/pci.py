# SPDX-License-Identifier: Apache-2.0
"""PCI bridges that redirect traffic between GPUs to the CPU (ACS).

A device's configuration space is read from sysfs. Root can read all of it. Other users can read its
first 64 bytes, which do not contain ACS.
"""

import re
import struct
from typing import Final

from gpupack_agent.host_files import Root

DEVICES: Final = "/sys/bus/pci/devices"
ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
EXTENDED: Final = 0x100
"""The offset of extended capabilities; each header has ID, version and the next one's offset."""
SPACE: Final = 4096
ACS: Final = 0x000D
CONTROL: Final = 6
"""The offset of the control register in the ACS capability."""
REDIRECTS: Final = 0x04 | 0x08
"""The bits P2P Request Redirect and P2P Completion Redirect of that register."""


def redirecting_bridges(root: Root, address: str) -> tuple[str, ...]:
    """Return the addresses of redirecting bridges above a device, as far as they are readable."""
    found = root.find(f"{DEVICES}/{address}")
    above = [part for part in found.parts if ADDRESS.fullmatch(part)] if found is not None else []
    return tuple(
        bridge
        for bridge in above
        if bridge != address and redirects(root.binary(f"{DEVICES}/{bridge}/config") or b"")
    )


def redirects(space: bytes) -> bool:
    """Tell whether a configuration space enables the redirect; a truncated one does not."""
    place, seen = EXTENDED, set[int]()
    while EXTENDED <= place <= min(len(space), SPACE) - 4 and place not in seen:
        seen.add(place)
        (header,) = struct.unpack_from("<I", space, place)
        if header & 0xFFFF == ACS and place + CONTROL + 2 <= len(space):
            (control,) = struct.unpack_from("<H", space, place + CONTROL)
            return bool(control & REDIRECTS)
        place = header >> 20 & ~3
    return False
