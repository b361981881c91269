# SPDX-License-Identifier: Apache-2.0
"""What a person is told beside the answer, on stderr."""

import os
import sys

import click

from gpupack_cli.text import plain


def note(text: str) -> None:
    """Tell it on a line of its own, dim on a terminal that shows colours."""
    dim = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    line = plain(text)
    click.echo(click.style(line, dim=True) if dim else line, err=True)
