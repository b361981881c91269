# SPDX-License-Identifier: Apache-2.0
"""Plots of a quantity over time or demand: mean over seeds as a line, spread as a band."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpupack_placement import FloatArray
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.plots.style import (
    empty,
    legend_below,
    line_style,
    new_figure,
    policies_of,
    tidy,
)
from gpupack_simulator.output.series import Steps, edges
from gpupack_simulator.output.units import UNITS
from gpupack_simulator.record import TimeUnit

Series = Callable[[Digest], Steps]
NARROW = 0.35
"""Curves that end within this fraction of the axis get a second panel that magnifies them."""
TAIL = 0.6
"""Start of the second panel of an experiment without a clock, as a fraction of the x axis."""
MIN_RANGE = 1.0
ALIKE = 6
"""Decimal digits in which curves that are drawn as one agree."""


@dataclass(frozen=True, slots=True)
class Band:
    """Policies with the same curve. `number`: that of the first. `spread` None: one seed."""

    policies: tuple[str, ...]
    number: int
    x: FloatArray
    mean: FloatArray
    spread: FloatArray | None


def draw_bands(
    digests: Sequence[Digest],
    series: Series,
    *,
    label: str,
    top: float | None = None,
    missing: str,
) -> Figure:
    """Draw the bands of a series, with a closer look if the curves end close together.

    `top`: upper end of the axis; `missing`: text if no run has the series.
    """
    drawn = [one for one in digests if series(one)]
    if not drawn:
        return empty(missing)
    bands, x_label = _bands(drawn, series)
    window = _mostly_equal(bands, drawn, top)
    figure, panels = new_figure(1, 2 if window else 1, height=4.2)
    steps = drawn[0].unit is TimeUnit.STEP
    for axes in panels:
        _draw(axes, bands, steps=steps)
        tidy(axes, x=x_label, y=label)
    _mark_warm_up(panels[0], max(one.measured_from for one in drawn))
    panels[0].set_ylim(0, top)
    clocked = drawn[0].unit is not TimeUnit.ARRIVAL
    panels[0].set_xlim(0, max(one.ended for one in drawn) if clocked else bands[0].x[-1])
    if window:
        (left, right), (low, high) = window
        panels[1].set_xlim(left, right)
        panels[1].set_ylim(low, high)
        panels[1].set_title("closer look", fontsize=11, loc="left")
    legend_below(figure, panels[0])
    return figure


def _mark_warm_up(axes: Axes, until: float) -> None:
    """Shade the warm-up, which figures leave out."""
    if until > 0:
        axes.axvspan(0, until, color="#f2f2f2", zorder=0)
        axes.annotate(
            "warm-up",
            (until, 0),
            xycoords=("data", "axes fraction"),
            xytext=(-4, 5),
            textcoords="offset points",
            ha="right",
            fontsize=9,
            color="#777777",
        )


def _bands(digests: Sequence[Digest], series: Series) -> tuple[list[Band], str]:
    unit = digests[0].unit
    policies = policies_of(digests)
    if unit is TimeUnit.ARRIVAL:
        most = min(one.arrived.last or 0.0 for one in digests)
        x = np.linspace(0.0, most, 521)
        rows = {
            p: [_by_demand(d, series(d), x) for d in digests if d.policy == p] for p in policies
        }
        return _merged(x, rows), "GPU capacity asked for so far (% of all)"
    grid = edges(unit, max(one.ended for one in digests))
    x = grid[:-1] if unit is TimeUnit.STEP else (grid[1:] + grid[:-1]) / 2
    found = {p: [series(d).means(grid) for d in digests if d.policy == p] for p in policies}
    return _merged(x, found), UNITS[unit].axis


def _by_demand(digest: Digest, steps: Steps, percents: FloatArray) -> FloatArray:
    """Return the values at these percents of demand, interpolated linearly between samples."""
    asked = digest.arrived.at(steps.times)
    known = np.isfinite(asked)
    if not known.any():
        return np.full(len(percents), np.nan)
    slack = 1e-6 * asked[known][-1]
    values = np.interp(percents, asked[known], steps.values[known])
    values[(percents < asked[known][0]) | (percents > asked[known][-1] + slack)] = np.nan
    return values


def _merged(x: FloatArray, rows: Mapping[str, Sequence[FloatArray]]) -> list[Band]:
    """Merge policies with equal curves into one band, since their lines cannot be distinguished."""
    same: dict[bytes, list[str]] = {}
    for policy, of_policy in rows.items():
        same.setdefault(np.round(of_policy, ALIKE).tobytes(), []).append(policy)
    numbers = {policy: number for number, policy in enumerate(rows)}
    return [
        Band(tuple(policies), numbers[policies[0]], x, *_levels(rows[policies[0]]))
        for policies in same.values()
    ]


def _levels(rows: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray | None]:
    """Return mean and spread; if only some seeds got that far, over these."""
    table = np.ma.masked_invalid(np.array(rows))
    mean = np.ma.filled(table.mean(axis=0).astype(float), np.nan)
    if len(rows) < 2:  # noqa: PLR2004 - one value has no spread
        return mean, None
    return mean, np.ma.filled(table.std(axis=0, ddof=1).astype(float), np.nan)


def _draw(axes: Axes, bands: Sequence[Band], *, steps: bool) -> None:
    lines = 1 + max(band.number for band in bands)
    for band in bands:
        style = line_style(band.number, lines)
        draw = "steps-post" if steps else "default"
        x, mean = (_closed(band.x, band.mean)) if steps else (band.x, band.mean)
        axes.plot(x, mean, label=", ".join(band.policies), drawstyle=draw, **style)
        if band.spread is not None:
            low, high = band.mean - band.spread, band.mean + band.spread
            axes.fill_between(
                band.x,
                low,
                high,
                step="post" if steps else None,
                color=style["color"],
                alpha=0.18,
                linewidth=0,
            )


def _edges(band: Band) -> tuple[FloatArray, ...]:
    if band.spread is None:
        return (band.mean,)
    return band.mean - band.spread, band.mean + band.spread


def _closed(x: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Append a right end to the last step."""
    return np.append(x, x[-1] + 1), np.append(values, values[-1])


def _mostly_equal(
    bands: Sequence[Band], digests: Sequence[Digest], top: float | None
) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return x and y limits of the closer look; None: none is needed."""
    clocked = digests[0].unit is not TimeUnit.ARRIVAL
    right = max(one.ended for one in digests) if clocked else float(bands[0].x[-1])
    left = max(one.measured_from for one in digests) if clocked else TAIL * right
    tails = np.concatenate([edge[band.x >= left] for band in bands for edge in _edges(band)])
    tails = tails[np.isfinite(tails)]
    if top is None or len(tails) == 0 or digests[0].unit is TimeUnit.STEP:
        return None
    low, high = float(tails.min()), float(tails.max())
    if high - low > NARROW * top:
        return None
    margin = 0.06 * max(high - low, MIN_RANGE)
    return (left, right), (max(low - margin, 0.0), min(high + margin, top))
