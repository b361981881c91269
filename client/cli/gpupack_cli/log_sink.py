# SPDX-License-Identifier: Apache-2.0
"""The output of log lines: stdout, each line whole, in the order of their arrival."""

import asyncio
import sys
from typing import TextIO

from gpupack_cli.text import coloured, uncoloured
from gpupack_terminal import Screen, screen


class LogSink:
    """A writer of lines, which waits while the user answers a prompt.

    Args:
        out: gets the lines.
        shown: capabilities of `out`. On a terminal lines are sanitized, and keep their colours
            where it has any.
        raw: lines are unchanged, on a terminal too.
    """

    def __init__(self, out: TextIO, shown: Screen, *, raw: bool = False) -> None:
        self._out, self._shown, self._safe = out, shown, shown.terminal and not raw
        self.go = asyncio.Event()
        """While it is cleared, writers wait."""
        self.go.set()
        self.lines = 0

    @classmethod
    def of_stdout(cls, *, raw: bool) -> "LogSink":
        """Return the sink of the process."""
        return cls(sys.stdout, screen(sys.stdout), raw=raw)

    async def write(self, prefix: str, line: bytes) -> None:
        """Write one line."""
        await self.go.wait()
        if self._safe:
            text = line.decode(errors="replace")
            shown = coloured(text) if self._shown.colour else uncoloured(text)
            self._out.write(f"{prefix}{shown}\n")
        else:
            self._out.flush()
            self._out.buffer.write(prefix.encode() + line + b"\n")
        self._out.flush()
        self.lines += 1
