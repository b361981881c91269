# SPDX-License-Identifier: Apache-2.0
"""The comparison, for a terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from gpupack_simulator.output import comparison
from gpupack_simulator.output.comparison import Cell, Table
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.verdict import verdict


def tables(digests: Sequence[Digest]) -> RenderableType:
    """Return all tables with content, and the verdict. `*` marks the best of a column."""
    made = [comparison.overview(digests), comparison.waits(digests), comparison.waste(digests)]
    seeds = len({one.seed for one in digests})
    return shown(made, _note(seeds), verdict(digests))


def shown(made: Sequence[Table], *sentences: str) -> RenderableType:
    """Return the tables with content, one below the other, and sentences."""
    parts = [
        part
        for table in made
        if table.metrics
        for part in (Text(table.title, style="bold"), _rich(table), Text(""))
    ]
    return Group(*parts, *map(Text, sentences))


def _note(seeds: int) -> str:
    spread = f"mean ± standard deviation over {seeds} seeds; " if seeds > 1 else "one seed; "
    return f"{spread}* best of its column"


def _rich(table: Table) -> RichTable:
    rich = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
    )
    rich.add_column(table.rows_are, no_wrap=True)
    for column, metric in enumerate(table.metrics):
        cells_text = " ".join(_text(cells[column]) for cells in table.rows.values())
        widest = max(len(word) for word in f"{metric.heading} {cells_text}".split())
        rich.add_column(metric.heading, justify="right", min_width=widest)
    for policy, cells in table.rows.items():
        rich.add_row(policy, *(_cell(cell) for cell in cells))
    return rich


def _cell(cell: Cell) -> Text:
    return Text(_text(cell), style="bold green" if cell.best else "")


def _text(cell: Cell) -> str:
    """Return the text of a cell; in a narrow terminal the spread wraps below the mean."""
    return f"{cell.text.replace('± ', '±')}{'*' if cell.best else ''}"
