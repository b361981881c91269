# SPDX-License-Identifier: Apache-2.0
"""Answers as tables for people, or as JSON or YAML for programs.

Of a table on a terminal those columns are left out for which it is too narrow, the least important
first; a pipe gets all lines whole. Colours are for terminals alone, and NO_COLOR turns them off.
"""

import dataclasses
import io
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpupack_cli.options import Output
from gpupack_cli.text import plain

PIPE_COLUMNS: Final = 1 << 14
"""A line in a pipe is as long as it is."""

GAP: Final = 2
"""Between two columns."""

LEAST_REST: Final = 12
"""Characters of the column that takes what is left."""

LEAST_TEXT: Final = 6
"""Of any other that holds no numbers."""

STYLES: Final = {
    "Running": "green",
    "Succeeded": "green",
    "Healthy": "green",
    "ok": "green",
    "Failed": "red",
    "failed": "red",
    "Draining": "yellow",
    "Degraded": "yellow",
    "Maintenance": "yellow",
    "warning": "yellow",
    "Pending": "yellow",
    "Admitted": "cyan",
    "Suspended": "dim",
    "skipped": "dim",
}
"""By what stands in a cell alone."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        name: its heading.
        right: whether it holds numbers.
        least_width: columns of the terminal from which on it is shown; 0: always.
        wide: shown with `-o wide`, and never without.
        rest: takes what the others leave, and is cut there.
    """

    name: str
    right: bool = False
    least_width: int = 0
    wide: bool = False
    rest: bool = False


def console(*, err: bool = False) -> Console:
    """A console that takes no text for markup."""
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else PIPE_COLUMNS
    return Console(
        stderr=err, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False
    )


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Any]], *, output: Output, width: int
) -> Table:
    """The rows, whatever anybody wrote into them, as a table for so many columns of a terminal."""
    cells = [[_cell(value) for value in row] for row in rows]
    shown = [
        place
        for place, column in enumerate(columns)
        if output is Output.WIDE or (width >= column.least_width and not column.wide)
    ]
    built = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    widths = _widths(columns, shown, cells, width)
    for place in shown:
        column = columns[place]
        built.add_column(
            column.name.upper(),
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=widths[place],
        )
    for row in cells:
        built.add_row(*(row[place] for place in shown))
    return built


def _widths(
    columns: Sequence[Column], shown: list[int], cells: list[list[Text]], width: int
) -> dict[int, int]:
    """Of each column: what takes the rest is cut first, then the longest texts; numbers never."""
    widths = {
        place: max([len(columns[place].name), *(row[place].cell_len for row in cells)])
        for place in shown
    }
    excess = sum(widths.values()) + GAP * (len(shown) - 1) - width
    for place in shown:
        if columns[place].rest:
            cut = max(0, min(excess, widths[place] - LEAST_REST))
            widths[place], excess = widths[place] - cut, excess - cut
    texts = [place for place in shown if not columns[place].right]
    while excess > 0 and texts:
        longest = max(texts, key=widths.__getitem__)
        if widths[longest] <= LEAST_TEXT:
            break
        widths[longest], excess = widths[longest] - 1, excess - 1
    return widths


def show_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]], output: Output) -> None:
    """Print it; in a pipe without the spaces that fill up a terminal's lines."""
    screen = console()
    built = table(columns, rows, output=output, width=screen.width)
    if screen.is_terminal:
        screen.print(built)
        return
    with screen.capture() as captured:
        screen.print(built)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def show_document(document: Any, output: Output) -> None:
    """Print anything as JSON or YAML; control characters are escaped there."""
    built = msgspec.to_builtins(document)
    if output is Output.YAML:
        import yaml  # noqa: PLC0415 - most calls write none

        text = io.StringIO()
        yaml.safe_dump(built, text, sort_keys=False, allow_unicode=False)
        click.echo(text.getvalue(), nl=False)
        return
    click.echo(ascii_json(built))


def ascii_json(document: Any) -> str:
    """JSON in which nothing but ASCII stands, so that no terminal obeys it."""
    import json  # noqa: PLC0415 - as yaml

    return json.dumps(document, indent=2)


def _cell(value: Any) -> Text:
    text = plain("" if value is None else str(value))
    return Text(text, style=STYLES.get(text, ""))
