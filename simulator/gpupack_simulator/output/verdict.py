# SPDX-License-Identifier: Apache-2.0
"""The result in one sentence computed from the figures."""

from collections.abc import Sequence

from gpupack_simulator.output.comparison import (
    NO_SENTENCE,
    Cell,
    Metric,
    PreferredDirection,
    Table,
    difference,
    overview,
)
from gpupack_simulator.output.digest import Digest


def verdict(digests: Sequence[Digest]) -> str:
    """Describe the best policy by the decisive metric, and how certain that is."""
    table = overview(digests)
    metric = _decisive(table)
    if metric is None:
        return "Nothing was run, so there is nothing to compare."
    ranked = _ranked(table, metric)
    (first, best), *others = ranked
    if not others:
        return f"{first} is the only policy that was run: {metric.phrase(best.text)}."
    return f"{_judged(first, best, others, metric)}{_last(ranked, metric)}."


def _decisive(table: Table) -> Metric | None:
    """Return the mean wait if it differs, else the first metric with a sentence that differs."""
    if not table.metrics or not table.rows:
        return None
    for column, metric in enumerate(table.metrics):
        if metric.title == "mean wait" and any(row[column].best for row in table.rows.values()):
            return metric
    for column, metric in enumerate(table.metrics):
        if metric.sentence != NO_SENTENCE and any(row[column].best for row in table.rows.values()):
            return metric
    return table.metrics[0]


def _ranked(table: Table, metric: Metric) -> list[tuple[str, Cell]]:
    """Return the policies, best first; those without a value are left out."""
    column = table.metrics.index(metric)
    cells = [(p, row[column]) for p, row in table.rows.items() if row[column].mean is not None]
    sign = -1 if metric.better is PreferredDirection.HIGHER else 1
    return sorted(cells, key=lambda pair: sign * (pair[1].mean or 0.0))


def _judged(first: str, best: Cell, others: list[tuple[str, Cell]], metric: Metric) -> str:
    second, next_best = others[0]
    gap = difference(best, next_best)
    figure = metric.phrase(_number(best, metric))
    if gap is None:
        return f"{first} did best ({figure}), but no seed was run under both it and {second}"
    if round(gap.mean, metric.digits) == 0:
        return f"{_names([first, *_level(best, others, metric)])} did equally well ({figure})"
    ahead = f"{abs(gap.mean):.{metric.digits}f} {_points(metric)} ahead of {second}"
    if gap.noise is None:
        return f"{first} did best: {figure}, {ahead}; one seed says nothing of the noise"
    noise = f"{gap.noise:.{metric.digits}f} over {len(best.values)} seeds"
    if gap.is_significant:
        return f"{first} did best: {figure}, {ahead}, more than the noise ({noise})"
    return f"{first} did best ({figure}), but {ahead} is within the noise ({noise})"


def _level(best: Cell, others: list[tuple[str, Cell]], metric: Metric) -> list[str]:
    shown = round(best.mean or 0.0, metric.digits)
    return [policy for policy, cell in others if round(cell.mean or 0.0, metric.digits) == shown]


def _last(ranked: list[tuple[str, Cell]], metric: Metric) -> str:
    """Describe the last policy, if the sentence has not named it yet."""
    policy, cell = ranked[-1]
    if len(ranked) < 3 or cell.mean == ranked[0][1].mean:  # noqa: PLR2004 - a first, a second and a last
        return ""
    unit = "%" if metric.unit == "%" else f" {metric.unit}"
    return f"; {policy} came last with {_number(cell, metric)}{unit}"


def _number(cell: Cell, metric: Metric) -> str:
    return f"{cell.mean or 0.0:.{metric.digits}f}"


def _points(metric: Metric) -> str:
    return "points" if metric.unit == "%" else metric.unit


def _names(policies: list[str]) -> str:
    *most, last = policies
    return f"{', '.join(most)} and {last}" if most else last
