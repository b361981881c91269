# SPDX-License-Identifier: Apache-2.0
"""What a person is told beside the answer, on stderr."""

import sys

import click

from gpupack_cli.text import plain
from gpupack_terminal import screen


def note(text: str) -> None:
    """Tell it on a line of its own, dim where stderr has colours."""
    line, colour = plain(text), screen(sys.stderr).colour
    click.echo(click.style(line, dim=True) if colour else line, err=True, color=colour)
