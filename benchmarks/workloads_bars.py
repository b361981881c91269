# SPDX-License-Identifier: Apache-2.0
"""What the workloads are held to, and where in their results it stands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Result = dict[str, Any]
Pick = Callable[[Result, Sequence[dict[str, Any]]], float]


@dataclass(frozen=True)
class Bar:
    """One thing that was asked for.

    Attributes:
        what: for the reader.
        run: whose report is looked at, and
        gpus: of how many GPUs.
        asked: in words.
        threshold: what the ratio, or where there is none the figure, is compared with.
        most: the threshold is the most that may be, not the least.
        ratio: to the best known implementation, from the same run.
        figure: the speed or time itself.
        unit: of the figure.
        digits: of the figure, after the point.
    """

    what: str
    run: str
    gpus: int
    asked: str
    threshold: float
    figure: Pick
    unit: str
    ratio: Pick | None = None
    most: bool = False
    digits: int = 0

    def holds(self, judged: float) -> bool:
        """Whether what was measured is what was asked for."""
        return judged <= self.threshold if self.most else judged >= self.threshold


def metric(name: str) -> Pick:
    """Pick one of the metrics."""
    return lambda result, _: float(result["metrics"][name])


def least(column: str, **where: Any) -> Pick:
    """Pick the smallest figure of a column, of the rows in which other columns are so."""
    return lambda result, _: min(_column(result, column, where))


def most(column: str, **where: Any) -> Pick:
    """Pick the largest figure of a column, of the rows in which other columns are so."""
    return lambda result, _: max(_column(result, column, where))


def _column(result: Result, column: str, where: dict[str, Any]) -> list[float]:
    """Return a column's figures.

    Raises:
        ValueError: no row is so.
    """
    found = [
        float(row[column])
        for row in result.get("rows", [])
        if column in row and all(_agrees(row.get(name), value) for name, value in where.items())
    ]
    if not found:
        raise ValueError(f"no row has {column} where {where}")
    return found


def _agrees(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, (tuple, range)) else value == wanted


BARS: tuple[Bar, ...] = ()
