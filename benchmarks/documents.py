# SPDX-License-Identifier: Apache-2.0
"""Tables of Markdown, and their places in a document."""

from collections.abc import Iterable


def row(cells: Iterable[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"


def replaced(text: str, name: str, table: str) -> str:
    """The document with another table between the two marks of this name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    head, rest = text.split(begin)
    return f"{head}{begin}\n\n{table}\n\n{end}{rest.split(end)[1]}"
