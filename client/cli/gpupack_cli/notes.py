# SPDX-License-Identifier: Apache-2.0
"""Notes to the user next to the answer, on stderr."""

import sys
from typing import Final

import click

from gpupack_cli.text import plain
from gpupack_terminal import screen

MIN_REPORTED_SECONDS: Final = 1.0
"""Minimum seconds of a pause that is reported."""


def note(text: str) -> None:
    """Print a note on a line of its own, dim where stderr has colours."""
    line, colour = plain(text), screen(sys.stderr).colour
    click.echo(click.style(line, dim=True) if colour else line, err=True, color=colour)


def note_pause(seconds: float, error: BaseException | None) -> None:
    """Print that a request is retried after a pause, unless that is short."""
    if seconds >= MIN_REPORTED_SECONDS:
        note(f"{error}; trying again in {seconds:g} s")
