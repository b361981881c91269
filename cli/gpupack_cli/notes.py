# SPDX-License-Identifier: Apache-2.0
"""What a person is told beside the answer, on stderr."""

import sys
from typing import Final

import click

from gpupack_cli.text import plain
from gpupack_terminal import screen

SAID_SECONDS: Final = 1.0
"""A shorter pause needs no word."""


def note(text: str) -> None:
    """Tell it on a line of its own, dim where stderr has colours."""
    line, colour = plain(text), screen(sys.stderr).colour
    click.echo(click.style(line, dim=True) if colour else line, err=True, color=colour)


def note_pause(seconds: float, error: BaseException | None) -> None:
    """Say that a request is sent again after so long, unless that is soon."""
    if seconds >= SAID_SECONDS:
        note(f"{error}; trying again in {seconds:g} s")
