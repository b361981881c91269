# SPDX-License-Identifier: Apache-2.0
"""What a terminal, a pipe, an encoding and a colour setting mean, for every command of gpupack.

    stream + environment ─► screen() ─► Screen: columns, colour, live pictures, encoding
                                          └─► console(): rich, which decides nothing of this itself
    sys.stdout, sys.stderr ─► run() ─► closed pipe: status 141; full disk: status 74

| setting | meaning |
|---|---|
| a pipe or a file | lines are as long as they are, without colours and pictures that move |
| `COLUMNS`, `LINES` | size of a terminal, in place of what it reports; a pipe has none |
| `NO_COLOR`, not empty | no colours, whatever else is set |
| `CLICOLOR_FORCE` or `FORCE_COLOR`, not empty and not 0 | colours, in a pipe as well |
| `CLICOLOR=0` | no colours |
| `TERM=dumb` | a terminal without colours and without pictures that move |
| `PYTHONIOENCODING` | the encoding; what it does not have is replaced or escaped |
| `LC_ALL`, `LC_CTYPE` or `LANG` is C or POSIX | a terminal gets ASCII; a pipe still gets UTF-8 |
"""

from gpupack_terminal.process import CANNOT_WRITE, PIPE_CLOSED, exit_status, run
from gpupack_terminal.rich_console import PIPE_COLUMNS, console
from gpupack_terminal.screens import Screen, screen
from gpupack_terminal.streams import CannotWrite, OutputEnded, PipeClosed

__all__ = [
    "CANNOT_WRITE",
    "PIPE_CLOSED",
    "PIPE_COLUMNS",
    "CannotWrite",
    "OutputEnded",
    "PipeClosed",
    "Screen",
    "console",
    "exit_status",
    "run",
    "screen",
]
