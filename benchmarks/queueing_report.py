# SPDX-License-Identifier: Apache-2.0
"""Writes table and figure of docs/queueing/measurements.md from docs/reports/queueing.json.

python benchmarks/queueing_report.py
"""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

import numpy as np
from documents import replaced, row
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pictures import svg

REPORT: Final = Path("docs/reports/queueing.json")
DOCUMENT: Final = Path("docs/queueing/measurements.md")
PICTURE: Final = Path("docs/queueing/queueing.svg")
MARKS: Final = "queues"
"""Marks around the table."""
SIZES: Final = {
    "share": "share",
    "one": "1 GPU",
    "2-3": "2-3",
    "4-7": "4-7",
    "8": "8 or more",
}
HEADS: Final = (
    *("workload", "queue", "mean wait, h", *SIZES.values(), "wait at the end, %"),
    *("preemptions", "GPU-hours lost", "% of work", "fairness", "allocated %"),
)
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00")
MIN_SHOWN_HOURS: Final = 0.01
"""Hours; shorter mean waits are drawn at this value."""

Runs = Mapping[str, Mapping[str, Any]]
"""Figures by seed."""


def table(report: Mapping[str, Any]) -> str:
    """Return one row for each workload and queue: mean ± standard deviation over seeds."""
    lines = [row(HEADS), row(["---"] * len(HEADS))]
    for workload, found in report["workloads"].items():
        lines.append(row(_jobs(workload, found)))
        for queue, runs in found["queues"].items():
            waits = [_mean_and_spread(_waits(runs, size), 2) for size in SIZES]
            figures = (
                ("preemptions", 0),
                ("lost_gpu_hours", 0),
                ("lost_percent_of_allocated", 1),
                ("jain_mean", 3),
                ("allocation_percent", 1),
            )
            cells = [_mean_and_spread(_values(runs, name), digits) for name, digits in figures]
            all_waits = _mean_and_spread(_values(runs, "wait_mean_hours"), 2)
            lines.append(
                row(
                    [
                        workload,
                        queue,
                        all_waits,
                        *waits,
                        _mean_and_spread(_waiting(runs), 1),
                        *cells,
                    ]
                )
            )
    return "\n".join(lines)


def _jobs(workload: str, found: Mapping[str, Any]) -> list[str]:
    """Return the number of measured jobs and the offered load, as means over seeds."""
    runs = next(iter(found["queues"].values()))
    counts = [
        [run["waits"].get(size, {"jobs": 0})["jobs"] for run in runs.values()] for size in SIZES
    ]
    load = _mean_and_spread([*found["offered_load"].values()], 2)
    every = sum(mean(of_size) for of_size in counts)
    by_size = [f"n = {mean(of_size):,.0f}" for of_size in counts]
    return [workload, f"(load offered: {load})", f"n = {every:,.0f}", *by_size, *[""] * 6]


def _waiting(runs: Runs) -> list[float]:
    """Return the pending jobs at the end in percent of the jobs that request GPUs."""
    found = ([run["waits"][s] for s in SIZES if s in run["waits"]] for run in runs.values())
    return [
        100 * sum(of["still_waiting"] for of in waits) / sum(of["jobs"] for of in waits)
        for waits in found
    ]


def _values(runs: Runs, name: str) -> list[float]:
    return [run[name] for run in runs.values() if run[name] is not None]


def _waits(runs: Runs, size: str) -> list[float]:
    return [run["waits"][size]["mean_hours"] for run in runs.values() if size in run["waits"]]


def _mean_and_spread(values: list[float], digits: int) -> str:
    if not values:
        return "-"
    spread = f" ± {stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):,.{digits}f}{spread}"


def draw(report: Mapping[str, Any]) -> Figure:
    """Draw a column for each workload: waits by size above, fairness over time below."""
    workloads = report["workloads"]
    figure = Figure(figsize=(5.2 * len(workloads), 6.4), layout="constrained")
    panels = figure.subplots(2, len(workloads), squeeze=False)
    for column, (name, found) in enumerate(workloads.items()):
        _draw_waits(panels[0][column], found["queues"], name)
        _draw_fairness(panels[1][column], found["queues"])
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _draw_waits(axes: Axes, queues: Mapping[str, Runs], title: str) -> None:
    sizes = [size for size in SIZES if any(_waits(runs, size) for runs in queues.values())]
    width = 0.8 / len(queues)
    for number, (queue, runs) in enumerate(queues.items()):
        heights = [max(mean(_waits(runs, size) or [0.0]), MIN_SHOWN_HOURS) for size in sizes]
        places = np.arange(len(sizes)) + (number - (len(queues) - 1) / 2) * width
        axes.bar(places, heights, width, label=queue, color=COLOURS[number % len(COLOURS)])
    axes.set_xticks(range(len(sizes)), [SIZES[size] for size in sizes])
    axes.set_yscale("log")
    axes.set_ylim(bottom=MIN_SHOWN_HOURS)
    axes.set(title=title, ylabel="mean wait, hours (logarithmic)")


def _draw_fairness(axes: Axes, queues: Mapping[str, Runs]) -> None:
    for number, (queue, runs) in enumerate(queues.items()):
        windows = np.array([run["jain"] for run in runs.values()], float)
        known = ~np.isnan(windows).all(axis=0)
        index = np.full(windows.shape[1], np.nan)
        index[known] = np.nanmean(windows[:, known], axis=0)
        hours = next(iter(runs.values()))["hours"]
        edges = np.linspace(0.0, hours, windows.shape[1] + 1)
        axes.step(
            edges,
            np.append(index, index[-1:]),
            where="post",
            label=queue,
            color=COLOURS[number % len(COLOURS)],
        )
    axes.set_ylim(0, 1.03)
    axes.set(xlabel="hours measured", ylabel="fairness (Jain's index; 1: fair)")


def drawn(report: Mapping[str, Any]) -> str:
    """Return the picture as SVG."""
    return svg(draw(report), "queueing")


def main() -> None:
    """Write table and figure."""
    report = json.loads(REPORT.read_text())
    DOCUMENT.write_text(replaced(DOCUMENT.read_text(), MARKS, table(report)))
    PICTURE.write_text(drawn(report))


if __name__ == "__main__":
    main()
