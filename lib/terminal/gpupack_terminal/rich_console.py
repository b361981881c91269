# SPDX-License-Identifier: Apache-2.0
"""rich's console for a screen.

rich reads NO_COLOR, FORCE_COLOR, TERM, COLUMNS and more by itself, and takes a pipe for a terminal
of 80 columns. It is given an answer to each of these, and an empty environment.
"""

import sys
from typing import TYPE_CHECKING, Final

from gpupack_terminal.screens import Screen, screen

if TYPE_CHECKING:
    from rich.console import Console

PIPE_COLUMNS: Final = 1 << 14
"""For rich, which wants a number: a line in a pipe is as long as it is."""


def console(*, err: bool = False, shown: Screen | None = None) -> "Console":
    """A console for stdout or stderr that takes no text for markup."""
    from rich.console import Console  # noqa: PLC0415 - 0.1 s, which most commands need not take

    shown = shown or screen(sys.stderr if err else sys.stdout)
    return Console(
        stderr=err,
        width=shown.columns or PIPE_COLUMNS,
        height=shown.size.lines if shown.size else None,
        force_terminal=shown.terminal,
        force_interactive=shown.live,
        color_system="standard" if shown.colour else None,
        no_color=not shown.colour,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
        _environ={},
    )
