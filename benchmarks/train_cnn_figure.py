# SPDX-License-Identifier: Apache-2.0
"""Makes train-cnn.svg and its table in docs/workloads from the report of train_cnn_compare.py.

python benchmarks/train_cnn_figure.py
"""

import itertools
import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import documents
from matplotlib.figure import Figure
from pictures import svg

ROOT: Final = Path(__file__).resolve().parents[1]
REPORT: Final = ROOT / "docs" / "reports" / "train-cnn-compare.json"
PICTURE: Final = ROOT / "docs" / "workloads" / "train-cnn.svg"
DOCUMENT: Final = ROOT / "docs" / "workloads" / "cnn.md"
TABLE: Final = "train-cnn-compare"

Run = dict[str, Any]


@dataclass(frozen=True)
class Combination:
    """The trainings of one optimiser and batch size, one per seed."""

    optimizer: str
    batch_size: int
    runs: tuple[Run, ...]

    @property
    def whole(self) -> list[Run]:
        """Those that did not diverge, whether anything was learnt in them or not."""
        return [run for run in self.runs if "metrics" in run]

    @property
    def seeds(self) -> str:
        """How many there are, and of these how many learnt, if not all."""
        learnt = sum(run["learnt"] for run in self.runs)
        return str(learnt) if learnt == len(self.runs) else f"{len(self.runs)}, {learnt} learnt"

    def epoch_seconds(self) -> float:
        """Return the time of the epoch that other work on the machine has held up least."""
        seconds: float = min(row["seconds"] for run in self.whole for row in run["rows"])
        return seconds

    def metric(self, name: str) -> list[float]:
        """Return a figure of each that did not diverge."""
        return [float(run["metrics"][name]) for run in self.whole]

    def accuracies(self) -> list[tuple[float, ...]]:
        """Return, epoch by epoch, the validation accuracy of each that did not diverge."""
        return list(
            zip(
                *([row["validation_accuracy"] for row in run["rows"]] for run in self.whole),
                strict=True,
            )
        )

    def epochs_to(self, target: float) -> list[int]:
        """Return the first epoch with this validation accuracy, of each that got there."""
        reached = (
            next(
                (row["epoch"] for row in run["rows"] if row["validation_accuracy"] >= target), None
            )
            for run in self.whole
        )
        return [epoch for epoch in reached if epoch is not None]


def combinations(runs: Iterable[Run]) -> list[Combination]:
    """Return the trainings by optimiser and batch size, in the order in which they were made."""
    found: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        found.setdefault((run["optimizer"], run["batch_size"]), []).append(run)
    return [Combination(*key, tuple(group)) for key, group in found.items()]


def table(report: dict[str, Any]) -> str:
    """Return a row for each combination: means over the seeds, in brackets smallest and largest."""
    target = f"epochs to {report['target']:.0%}"
    head = (
        "optimizer",
        "batch",
        "learning rate",
        "s per epoch, fastest",
        target,
        "test accuracy, %",
        "seeds",
    )
    rows = [cells(each, report["target"]) for each in combinations(report["runs"])]
    return documents.table(head, rows)


def cells(each: Combination, target: float) -> tuple[str, ...]:
    """Return one combination's row."""
    name = (f"`{each.optimizer}`", str(each.batch_size))
    if not each.whole:
        return (*name, "-", "-", "-", "-", each.seeds)
    reached = each.epochs_to(target)
    missed = f", {len(reached)} of {len(each.runs)}" if len(reached) < len(each.runs) else ""
    return (
        *name,
        f"{each.metric('learning_rate')[0]:.2g}",
        f"{each.epoch_seconds():.2f}",
        f"{spread(reached, '.1f', ',.0f')}{missed}" if reached else "never",
        spread([100 * share for share in each.metric("test_accuracy")], ".1f", ".1f"),
        each.seeds,
    )


def spread(values: Iterable[float], mean: str, ends: str) -> str:
    """Return a mean, and in brackets the smallest and largest value."""
    found = list(values)
    return f"{statistics.mean(found):{mean}} ({min(found):{ends}} to {max(found):{ends}})"


def draw(report: dict[str, Any]) -> Figure:
    """Validation accuracy by epoch, a panel for each batch size, and the time of an epoch."""
    found = combinations(report["runs"])
    sizes = sorted({each.batch_size for each in found})
    figure = Figure(figsize=(4 * (len(sizes) + 1), 4), layout="constrained")
    *panels, times = figure.subplots(1, len(sizes) + 1)
    colours = {name: f"C{n}" for n, name in enumerate(dict.fromkeys(e.optimizer for e in found))}
    for axes, size in zip(panels, sizes, strict=True):
        learning(axes, [each for each in found if each.batch_size == size], colours)
        axes.axhline(report["target"], color="grey", linewidth=0.8, linestyle=":")
        axes.set(title=f"batch {size}", xlabel="epoch", ylim=(0, 1))
    panels[0].set_ylabel("validation accuracy, mean and range over seeds")
    panels[0].legend(loc="lower right")
    for name, group in itertools.groupby(found, key=lambda each: each.optimizer):
        points = [(each.batch_size, each.epoch_seconds()) for each in group if each.whole]
        times.plot(*zip(*points, strict=True), marker=".", color=colours[name], label=name)
    times.set_xscale("log", base=2)
    times.set(title="fastest epoch", xlabel="batch", ylabel="seconds", ylim=(0, None))
    return figure


def learning(axes: Any, found: list[Combination], colours: dict[str, str]) -> None:
    """Draw each optimiser's course: the mean over the seeds, and the range around it."""
    for each in found:
        courses = each.accuracies()
        epochs = range(1, len(courses) + 1)
        means = [statistics.mean(accuracies) for accuracies in courses]
        colour = colours[each.optimizer]
        axes.plot(epochs, means, color=colour, label=each.optimizer)
        axes.fill_between(
            epochs, list(map(min, courses)), list(map(max, courses)), color=colour, alpha=0.15
        )


def drawn(report: dict[str, Any]) -> str:
    """Return the picture of a report."""
    return svg(draw(report), "train-cnn")


def main() -> None:
    """Write picture and table."""
    report = json.loads(REPORT.read_text())
    PICTURE.write_text(drawn(report))
    DOCUMENT.write_text(documents.replaced(DOCUMENT.read_text(), TABLE, table(report)))


if __name__ == "__main__":
    main()
