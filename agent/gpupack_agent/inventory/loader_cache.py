# SPDX-License-Identifier: Apache-2.0
"""The cache of a host's dynamic loader: glibc's /etc/ld.so.cache, ld.so(8).

The file has a header of 48 bytes, entries of 24 bytes, then the strings that the entries point at
by their offset from the header's start. Older files have entries of an older format before the
header; these are skipped. A file of any other format contains no library.
"""

import struct
from collections.abc import Iterator
from typing import Final

from gpupack_agent.host_files import Root

CACHE: Final = "/etc/ld.so.cache"

_MAGIC: Final = b"glibc-ld.so.cache1.1"
_HEADER: Final = struct.Struct("<20sII20x")
_ENTRY: Final = struct.Struct("<iIIIQ")
_KIND: Final = 0xFF00
_KINDS_64_BIT: Final = frozenset({0x0300, 0x0A00})
"""The values for x86-64 and AArch64 in an entry's flags."""


def folders_of(root: Root, library: str) -> tuple[str, ...]:
    """Return the folders in which the loader finds a 64-bit library, in its order."""
    data = root.binary(CACHE) or b""
    paths = (path for name, path in _entries(data) if name == library)
    return tuple(dict.fromkeys(path.rpartition("/")[0] for path in paths))


def _entries(data: bytes) -> Iterator[tuple[str, str]]:
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + _HEADER.size:
        return
    _, count, _ = _HEADER.unpack_from(data, start)
    for number in range(count):
        place = start + _HEADER.size + number * _ENTRY.size
        if place + _ENTRY.size > len(data):
            return
        flags, name, path, _, _ = _ENTRY.unpack_from(data, place)
        if flags & _KIND in _KINDS_64_BIT:
            yield _text(data, start + name), _text(data, start + path)


def _text(data: bytes, start: int) -> str:
    return data[start : data.find(b"\0", start)].decode(errors="replace")
