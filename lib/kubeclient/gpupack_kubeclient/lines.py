# SPDX-License-Identifier: Apache-2.0
"""The lines of a watch, with a limit on their memory.

One object may be several MiB of JSON: etcd takes 1.5 MiB, and Go's encoder writes each <, > and &
in six bytes. aiohttp's own line reader ends the stream with an error at twice its buffer. Here a
line that is too long is read to its end without being held, and its beginning identifies the
object.
"""

import dataclasses
import json
import re
from collections.abc import AsyncIterable, AsyncIterator

HEAD_BYTES = 1 << 16
"""Bytes of a line that is too long that are kept."""

METADATA_LEVEL = 3
"""Depth of `{"object": {"metadata": {"name": …`; deeper fields do not identify the object."""

_TOKEN = re.compile(
    rb'\s*(?:("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|([{}\[\],])|([^\s{}\[\],:"]+))', re.DOTALL
)


@dataclasses.dataclass(frozen=True, slots=True)
class LongLine:
    """A line that is longer than the limit.

    Attributes:
        head: its first bytes.
        size: its length in bytes.
    """

    head: bytes
    size: int


class _Line:
    """A line that is being read."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._too_long = False
        self.size = 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if self._too_long:
            return
        self._parts.append(part)
        if self.size > self._max_bytes:
            self._parts = [b"".join(self._parts)[:HEAD_BYTES]]
            self._too_long = True

    def taken(self) -> bytes | LongLine:
        """Return the line; the next part begins another line."""
        whole = b"".join(self._parts)
        line = LongLine(whole, self.size) if self._too_long else whole
        self._parts, self.size, self._too_long = [], 0, False
        return line


async def lines(chunks: AsyncIterable[bytes], *, max_bytes: int) -> AsyncIterator[bytes | LongLine]:
    """Split a stream at its newlines; skip empty lines.

    At most `max_bytes`, one chunk and one copy of both are held at a time.
    """
    line = _Line(max_bytes)
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        line.add(first)
        for part in others:
            if line.size:
                yield line.taken()
            line.add(part)
    if line.size:
        yield line.taken()


def texts(head: bytes) -> dict[tuple[str, ...], str]:
    """Return the texts in the beginning of a watch's line by path, down to the object's metadata.

    Only tokens are read, one after the other, so that a text that looks like JSON is not taken for
    JSON, and depth costs nothing. Lists are skipped.
    """
    found: dict[tuple[str, ...], str] = {}
    path: list[str] = []
    depth, key, position = 0, "", 0
    while token := _TOKEN.match(head, position):
        position = token.end()
        text, colon, mark, _ = token.groups()
        if mark in (b"}", b"]"):
            depth -= 1
            path = path[:depth]
        elif mark in (b"{", b"["):
            if depth < METADATA_LEVEL:
                path.append("[" if mark == b"[" else key)
            depth += 1
        elif text and depth <= METADATA_LEVEL and "[" not in path:
            if colon:
                key = json.loads(text)
            else:
                found.setdefault((*path[1:], key), json.loads(text))
    return found


_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ALL_BRACES = bytes.maketrans(b"[]", b"{}")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


def is_shallow(text: bytes, *, levels: int) -> bool:
    """Tell whether JSON is nested no deeper than `levels`; works at any depth.

    Recursive readers of JSON fail at some hundred levels, often in unexpected places.
    """
    braces = _TEXT.sub(b"", text).translate(_ALL_BRACES, _OTHERS)
    for _ in range(levels):
        if not braces:
            return True
        braces = braces.replace(b"{}", b"")
    return not braces
