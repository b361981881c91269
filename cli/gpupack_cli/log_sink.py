# SPDX-License-Identifier: Apache-2.0
"""Where lines of logs go: stdout, each whole, in the order in which they came."""

import asyncio
import sys
from typing import BinaryIO, Final

from gpupack_cli.text import coloured

FLUSH_BYTES: Final = 1 << 16


class LogSink:
    """Writes lines, and waits while a person is asked something.

    Args:
        out: takes the bytes.
        terminal: lines are made safe for it; else, or where `raw`, they stay as they are.
        raw: see there.
    """

    def __init__(self, out: BinaryIO, *, terminal: bool, raw: bool = False) -> None:
        self._out, self._safe = out, terminal and not raw
        self.go = asyncio.Event()
        """Clear it, and whoever writes waits."""
        self.go.set()
        self.lines = 0

    @classmethod
    def of_stdout(cls, *, raw: bool) -> "LogSink":
        """Of the process."""
        return cls(sys.stdout.buffer, terminal=sys.stdout.isatty(), raw=raw)

    async def write(self, prefix: str, line: bytes) -> None:
        """Write one line."""
        await self.go.wait()
        if self._safe:
            line = coloured(line.decode(errors="replace")).encode(errors="replace")
        self._out.write(prefix.encode() + line + b"\n")
        self._out.flush()
        self.lines += 1
