# SPDX-License-Identifier: Apache-2.0
"""Answers as tables for users, or as JSON or YAML for programs.

On a narrow terminal some columns are left out, and among the others the column that takes the rest
(a message) is cut. Nothing else is cut: a cut name cannot be copied, and UUIDs look alike. A line
that is still too long wraps, as kubectl's does. A pipe and `-o wide` get all columns and all text.
"""

import dataclasses
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import click
import msgspec
from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.console import RenderableType
from rich.text import Span, Text

from gpupack_cli.options import Output
from gpupack_cli.text import plain
from gpupack_terminal import PIPE_COLUMNS, console, screen

GAP: Final = 2
"""Spaces between two columns."""

MIN_REST_WIDTH: Final = 12
"""Minimum characters of the column that takes the rest."""

STYLES: Final = {
    "Running": "green",
    "Succeeded": "green",
    "Healthy": "green",
    "ok": "green",
    "Failed": "red",
    "failed": "red",
    "Cordoned": "yellow",
    "Degraded": "yellow",
    "Maintenance": "yellow",
    "warning": "yellow",
    "Pending": "yellow",
    "Admitted": "cyan",
    "Suspended": "dim",
    "skipped": "dim",
}
"""Style of a cell by its whole text."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: heading.
        right: whether it holds numbers.
        least_width: minimum columns of the terminal for it; 0: always shown.
        wide: shown only with `-o wide`.
        rest: takes the remaining width, and is cut there.
    """

    name: str
    right: bool = False
    min_width: int = 0
    wide: bool = False
    rest: bool = False


class _Cell(NamedTuple):
    """A cell's text, its width on a terminal, and the style of all of it."""

    text: str
    width: int
    style: str


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Any]],
    *,
    output: Output,
    width: int | None,
) -> list[Text]:
    """Return the lines of a table for a terminal of this width; None: a pipe.

    The rows may contain untrusted text.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    room = None if output is Output.WIDE else width
    shown = [
        place
        for place, column in enumerate(columns)
        if output is Output.WIDE
        or not (column.wide or (room is not None and room < column.min_width))
    ]
    heading = [_Cell(name, cell_len(name), "bold") for name in map(_heading, columns)]
    lines = [heading, *cells]
    widths = _widths(columns, shown, lines, room)
    return [_line(columns, shown, line, widths) for line in lines]


def _heading(column: Column) -> str:
    return column.name.upper()


def _widths(
    columns: Sequence[Column], shown: list[int], lines: list[list[_Cell]], room: int | None
) -> dict[int, int]:
    """Return the width of each column's longest text; the one that takes the rest is cut."""
    widths = {place: max(line[place].width for line in lines) for place in shown}
    if room is None:
        return widths
    excess = sum(widths.values()) + GAP * (len(shown) - 1) - room
    for place in shown:
        if columns[place].rest and excess > 0:
            cut = max(0, min(excess, widths[place] - MIN_REST_WIDTH))
            widths[place], excess = widths[place] - cut, excess - cut
    return widths


def _line(
    columns: Sequence[Column], shown: list[int], cells: list[_Cell], widths: dict[int, int]
) -> Text:
    """Return one line without trailing spaces, which would make an empty line after wrapping."""
    parts, spans = list[str](), list[Span]()
    gap, length = "", 0
    for place in shown:
        cell, width = cells[place], widths[place]
        text = cell.text if cell.width <= width else _cut(cell.text, width)
        space = " " * max(0, width - cell.width)
        before, after = (space, "") if columns[place].right else ("", space)
        if not text:
            gap += space + " " * GAP
            continue
        parts += gap, before, text
        end = length + len(gap) + len(before) + len(text)
        if cell.style:
            spans.append(Span(end - len(text), end, cell.style))
        gap, length = after + " " * GAP, end
    return Text("".join(parts), no_wrap=True, spans=spans)


def _cut(text: str, width: int) -> str:
    return set_cell_size(text, width - cell_len("…")).rstrip() + "…"


def show_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]], output: Output) -> None:
    """Print a table for the present stdout."""
    width = screen(sys.stdout).columns
    show_lines(table(columns, rows, output=output, width=width))


def show_lines(lines: Iterable[Text]) -> None:
    """Print lines unchanged, without wrapping."""
    written = _coloured if screen(sys.stdout).colour else _uncoloured
    # All at once: a reader such as `grep -q` may end after its first line.
    sys.stdout.write("".join(f"{line}\n" for line in written(lines)))


def _uncoloured(lines: Iterable[Text]) -> Iterator[str]:
    return (line.plain for line in lines)


def _coloured(lines: Iterable[Text]) -> Iterator[str]:
    """Yield lines as rich prints them, without a printer call for each line."""
    out = console()
    for line in lines:
        yield "".join(
            text if style is None else style.render(text, color_system=ColorSystem.STANDARD)
            for text, style, _ in line.render(out)
        )


def show(picture: RenderableType) -> None:
    """Print a picture for its own width; its lines wrap on a narrower terminal."""
    out = console()
    out.width = PIPE_COLUMNS
    with out.capture() as captured:
        out.print(picture)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


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
    """Return JSON in ASCII only, so that it contains no terminal sequences."""
    import json  # noqa: PLC0415 - as yaml

    return json.dumps(document, indent=2)


def _cell(value: Any) -> _Cell:
    text = plain("" if value is None else str(value))
    return _Cell(text, len(text) if text.isascii() else cell_len(text), STYLES.get(text, ""))
