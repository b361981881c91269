# SPDX-License-Identifier: Apache-2.0
"""The plot of waits by size: cumulative distribution over all jobs of all seeds."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpupack_placement import FloatArray
from gpupack_simulator.job import Size
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.plots.style import (
    empty,
    legend_below,
    line_style,
    new_figure,
    policies_of,
    tidy,
)
from gpupack_simulator.output.units import UNITS
from gpupack_simulator.record import TimeUnit

TITLES = {
    Size.SHARE: "shares of a GPU",
    Size.ONE: "1 GPU",
    Size.FEW: "2-3 GPUs",
    Size.HALF: "4-7 GPUs",
    Size.NODE: "8 GPUs and more",
}
COLUMNS = 3
POINTS = 600
WIDE = 30
"""Ratio of waits above which the axis is logarithmic."""
ZOOM_MIN_PERCENT = 60
ALL = 100


def waits(digests: Sequence[Digest]) -> Figure:
    """Draw one panel per size; CPU-only jobs are left out."""
    if not digests or digests[0].unit is TimeUnit.ARRIVAL:
        return empty("Jobs do not wait in this experiment: those that do not fit are dropped.")
    sizes = [size for size in TITLES if any(size in one.waits for one in digests)]
    if not sizes:
        return empty("No job asked for GPUs, so none waited for them.")
    columns = min(COLUMNS, len(sizes))
    rows = -(-len(sizes) // columns)
    figure, panels = new_figure(rows, columns, height=3.0 if rows > 1 else 3.6)
    limits, drawn = _limits(digests, sizes), _distinct_curves(digests, sizes)
    for size, axes in zip(sizes, panels, strict=False):
        tidy(axes, x=f"wait ({UNITS[digests[0].unit].short})", y="", title=TITLES[size])
        _panel(axes, _pooled(digests, size), drawn, *limits)
    for spare in panels[len(sizes) :]:
        spare.set_axis_off()
    legend_below(figure, panels[0])
    return figure


def _pooled(digests: Sequence[Digest], size: Size) -> dict[str, FloatArray]:
    none = np.array([])
    return {
        policy: np.sort(
            np.concatenate([d.waits.get(size, none) for d in digests if d.policy == policy])
        )
        for policy in policies_of(digests)
    }


def _distinct_curves(digests: Sequence[Digest], sizes: Sequence[Size]) -> dict[str, str]:
    """Return the policies to draw with their labels; those with equal waits share a line."""
    pooled = [_pooled(digests, size) for size in sizes]
    same: dict[bytes, list[str]] = {}
    for policy in policies_of(digests):
        waits = b"|".join(of_size[policy].tobytes() for of_size in pooled)
        same.setdefault(waits, []).append(policy)
    return {policies[0]: ", ".join(policies) for policies in same.values()}


def _panel(
    axes: Axes,
    waits: Mapping[str, FloatArray],
    drawn: Mapping[str, str],
    left: float,
    right: float,
) -> None:
    jobs = max(len(of_policy) for of_policy in waits.values())
    axes.set_ylabel(f"% of {jobs:,} {'job' if jobs == 1 else 'jobs'}")
    if left:
        axes.set_xscale("log")
        axes.set_xlabel(f"{axes.get_xlabel()}, logarithmic")
    for number, (policy, of_policy) in enumerate(waits.items()):
        if policy in drawn:
            style = line_style(number, len(waits))
            x, y = _curve(of_policy, left, right)
            axes.plot(x, y, label=drawn[policy], drawstyle="steps-post", **style)
    axes.set_xlim(left, right)
    lowest = _lowest(waits, left)
    axes.set_ylim(lowest, ALL + 0.02 * (ALL - lowest))
    if not any(of_policy.any() for of_policy in waits.values()):
        axes.text(0.5, 0.5, "none of them waited", transform=axes.transAxes, ha="center")


def _limits(digests: Sequence[Digest], sizes: Sequence[Size]) -> tuple[float, float]:
    """Return the limits of the x axes; the axis is logarithmic if it does not begin at 0.

    Curves on a logarithmic axis begin with the jobs that did not wait.
    """
    every = np.concatenate([one.waits[s] for one in digests for s in sizes if s in one.waits])
    positive = every[every > 0]
    if not len(positive):
        return 0.0, 1.0
    least, most = float(np.percentile(positive, 1)), float(positive.max())
    return (least, most * 1.2) if most / least > WIDE else (0.0, most * 1.05)


def _curve(waits: FloatArray, left: float, right: float) -> tuple[FloatArray, FloatArray]:
    """Return the curve between both edges; long curves are thinned out evenly in percent."""
    if not len(waits):
        return np.array([]), np.array([])
    ranks = np.unique(np.linspace(1, len(waits), min(len(waits), POINTS)).astype(int))
    x, y = waits[ranks - 1], 100 * ranks / len(waits)
    at_left = 100 * float(np.searchsorted(waits, left, side="right")) / len(waits)
    inside = x > left
    return (
        np.concatenate([[left], x[inside], [right]]),
        np.concatenate([[at_left], y[inside], [100.0]]),
    )


def _lowest(waits: Mapping[str, FloatArray], left: float) -> float:
    """Return the start of the y axis: just below the jobs that did not wait, if they are most."""
    shares = [100 * float((w <= left).mean()) for w in waits.values() if len(w)]
    least = min(shares, default=0.0)
    return least - 0.08 * (100 - least) if ZOOM_MIN_PERCENT <= least < ALL else 0.0
