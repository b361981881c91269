# SPDX-License-Identifier: Apache-2.0
"""Tables of Markdown, and their places in a document."""

import re
from collections.abc import Iterable


def row(cells: Iterable[str]) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(cells)} |"


def table(head: tuple[str, ...], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; each line ends with a newline."""
    return "".join(f"{row(cells)}\n" for cells in (head, ("---",) * len(head), *rows))


def replaced(text: str, name: str, table: str) -> str:
    """Return the document with a new table between the two marks of this name.

    <!-- NAME --> or <!-- NAME: how it is made --> begins its place, <!-- end of NAME --> ends it;
    with or without an empty line between marks and table.

    Raises:
        ValueError: the table has no place, or more than one.
    """
    mark = re.escape(name)
    place = re.compile(
        rf"(<!-- {mark}(?:: [^\n]*)? -->\n)(\n?).*?(<!-- end of {mark} -->)", re.DOTALL
    )
    if len(place.findall(text)) != 1:
        raise ValueError(f"the document has no single place for the table {name!r}")
    return place.sub(
        lambda found: f"{found[1]}{found[2]}{table.rstrip()}\n{found[2]}{found[3]}", text
    )
