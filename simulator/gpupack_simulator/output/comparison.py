# SPDX-License-Identifier: Apache-2.0
"""Comparison of policies: each figure as mean and spread over the seeds.

Spread is the standard deviation over seeds. Two policies with the same seeds had the same jobs, so
they are compared seed by seed: the noise of a difference is half the width of the 95% confidence
interval of its mean (Student's t over the seeds), much less than either spread.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import sqrt

import numpy as np

from gpupack_placement import FloatArray
from gpupack_simulator.job import Size
from gpupack_simulator.output.digest import Digest
from gpupack_simulator.output.figures import DEMANDS, Figures
from gpupack_simulator.output.units import UNITS
from gpupack_simulator.record import Cause, End, TimeUnit

CONFIDENCE = 0.95
NO_SENTENCE = "{}"


class PreferredDirection(Enum):
    """The direction in which a figure is better."""

    HIGHER = 1
    LOWER = -1
    NEITHER = 0


@dataclass(frozen=True, slots=True)
class Metric:
    """One column of a table."""

    title: str
    unit: str
    better: PreferredDirection
    digits: int
    value: Callable[[Figures], float | None]
    sentence: str = NO_SENTENCE
    """The figure as a part of the verdict; the verdict uses a metric with a sentence."""

    @property
    def heading(self) -> str:
        """Heading such as «allocated (%)»."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def phrase(self, figure: str) -> str:
        """Return a text such as «95.21% allocated», «a mean wait of 0.072 lifetimes»."""
        gap = "" if self.unit == "%" else " "
        return self.sentence.format(f"{figure}{gap}{self.unit}")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    `values` by seed; seeds without the figure are left out. `best`: it is the best of its column.
    """

    values: Mapping[int, float]
    digits: int
    best: bool = False

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; None: fewer than two."""
        return float(np.std(list(self.values.values()), ddof=1)) if len(self.values) > 1 else None

    @property
    def text(self) -> str:
        """Text such as «95.21 ± 0.14», «95.21» for one seed, «-» for no value."""
        if self.mean is None:
            return "-"
        spread = "" if self.spread is None else f" ± {self.spread:,.{self.digits}f}"
        return f"{self.mean:,.{self.digits}f}{spread}"


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `rows` by policy, or by what `rows_are` says; cells in the order of the metrics."""

    title: str
    metrics: tuple[Metric, ...]
    rows: Mapping[str, tuple[Cell, ...]]
    rows_are: str = "policy"


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two policies over the seeds that both ran. `noise` None: only one seed."""

    mean: float
    noise: float | None

    @property
    def is_significant(self) -> bool:
        """Whether the difference is more than seed noise."""
        return self.noise is not None and abs(self.mean) > self.noise


def overview(digests: Sequence[Digest]) -> Table:
    """Return the table of how well the cluster was used."""
    unit = _unit(digests)
    clocked = unit is not TimeUnit.ARRIVAL
    return _table(
        "How well the cluster was used", digests, _clocked(unit) if clocked else _filling()
    )


def waits(digests: Sequence[Digest]) -> Table:
    """Return the table of mean waits by size; no columns if nothing ever waits."""
    unit = _unit(digests)
    sizes = [s for s in Size if any(s in d.figures.waits for d in digests)]
    waiting = unit is not TimeUnit.ARRIVAL and any(d.figures.queue_longest for d in digests)
    metrics = [
        Metric(_size_title(size), "", PreferredDirection.LOWER, 3, partial(_mean_wait, size=size))
        for size in sizes
        if waiting
    ]
    return _table(f"Mean wait by GPUs of the job ({UNITS[unit].short})", digests, metrics)


def waste(digests: Sequence[Digest]) -> Table:
    """Return the table of capacity that no job used, by cause."""
    causes = known_causes(digests)
    metrics = [
        Metric(str(cause), "%", PreferredDirection.NEITHER, 2, partial(_wasted, cause=cause))
        for cause in causes
    ]
    return _table("Capacity that no job used, by cause (% of all capacity)", digests, metrics)


def known_causes(digests: Sequence[Digest]) -> list[Cause]:
    """Return the causes of waste that occur.

    If jobs are dropped, none ever waits, and NO_DEMAND alone has no meaning.
    """
    causes = [c for c in Cause if any(c in d.figures.waste.gpu_time for d in digests)]
    waiting = _unit(digests) is not TimeUnit.ARRIVAL
    return causes if waiting or causes != [Cause.NO_DEMAND] else []


def difference(first: Cell, second: Cell) -> Difference | None:
    """Return how much more the first has; None: no seed in common."""
    seeds = first.values.keys() & second.values.keys()
    if not seeds:
        return None
    each = np.array([first.values[seed] - second.values[seed] for seed in sorted(seeds)])
    if len(each) == 1:
        return Difference(float(each[0]), None)
    return Difference(float(each.mean()), confidence_interval(each))


def confidence_interval(
    values: Sequence[float] | FloatArray, confidence: float = CONFIDENCE
) -> float:
    """Return half the width of the confidence interval of the mean of two or more values.

    The interval is Student's t.
    """
    # It takes as long to load as a small run, and one seed does not need it.
    from scipy.special import stdtrit  # noqa: PLC0415

    quantile = stdtrit(len(values) - 1, (1 + confidence) / 2)
    return float(quantile * np.std(values, ddof=1) / sqrt(len(values)))


def _unit(digests: Sequence[Digest]) -> TimeUnit:
    return digests[0].unit if digests else TimeUnit.STEP


def _filling() -> list[Metric]:
    return [
        *(
            Metric(
                f"allocated at {demand}% demand",
                "%",
                PreferredDirection.HIGHER,
                2,
                partial(_at, demand=demand),
                f"{{}} of all GPU capacity allocated at {demand}% demand",
            )
            for demand in DEMANDS
        ),
        Metric(
            "allocated at the end",
            "%",
            PreferredDirection.HIGHER,
            2,
            lambda f: f.allocation_percent,
            "{} of all GPU capacity allocated at the end",
        ),
        Metric("fragmented", "%", PreferredDirection.LOWER, 2, lambda f: f.fragmentation_percent),
        _JOBS_DROPPED,
    ]


def _clocked(unit: TimeUnit) -> list[Metric]:
    short = UNITS[unit].short
    return [
        Metric(
            "allocated",
            "%",
            PreferredDirection.HIGHER,
            2,
            lambda f: f.allocation_percent,
            "{} of all GPU capacity allocated",
        ),
        Metric("fragmented", "%", PreferredDirection.LOWER, 2, lambda f: f.fragmentation_percent),
        Metric(
            "mean wait",
            short,
            PreferredDirection.LOWER,
            3,
            lambda f: f.wait_mean,
            "a mean wait of {}",
        ),
        Metric("queue, mean", "jobs", PreferredDirection.LOWER, 1, lambda f: f.queue_mean),
        Metric(
            "makespan", short, PreferredDirection.LOWER, 1, lambda f: f.makespan, "a makespan of {}"
        ),
        Metric(
            "finished",
            "jobs",
            PreferredDirection.NEITHER,
            0,
            lambda f: f.jobs.get(End.SUCCEEDED, 0),
        ),
        _JOBS_DROPPED,
    ]


_JOBS_DROPPED = Metric(
    "dropped", "jobs", PreferredDirection.LOWER, 0, lambda figures: figures.jobs.get(End.DROPPED, 0)
)


def _table(title: str, digests: Sequence[Digest], metrics: Sequence[Metric]) -> Table:
    """Make a table without empty columns, and without dropped jobs if there are none."""
    policies = list(dict.fromkeys(one.policy for one in digests))
    columns = {
        metric: [_cell(metric, [d for d in digests if d.policy == policy]) for policy in policies]
        for metric in metrics
    }
    informative = {
        metric: _marked(metric, cells)
        for metric, cells in columns.items()
        if _is_informative(metric, cells)
    }
    rows = {
        policy: tuple(cells[n] for cells in informative.values())
        for n, policy in enumerate(policies)
    }
    return Table(title, tuple(informative), rows)


def _is_informative(metric: Metric, cells: Sequence[Cell]) -> bool:
    if metric is _JOBS_DROPPED:
        return any(cell.mean for cell in cells)
    return any(cell.mean is not None for cell in cells)


def _cell(metric: Metric, digests: Sequence[Digest]) -> Cell:
    values = {one.seed: metric.value(one.figures) for one in digests}
    return Cell({seed: v for seed, v in values.items() if v is not None}, metric.digits)


def _marked(metric: Metric, cells: Sequence[Cell]) -> list[Cell]:
    """Mark the best cells, unless all are equal in the shown digits."""
    shown = [None if c.mean is None else round(c.mean, metric.digits) for c in cells]
    known = [value * metric.better.value for value in shown if value is not None]
    if metric.better is PreferredDirection.NEITHER or len(set(known)) <= 1:
        return list(cells)
    best = max(known)
    return [
        Cell(cell.values, cell.digits, value is not None and value * metric.better.value == best)
        for cell, value in zip(cells, shown, strict=True)
    ]


def _at(figures: Figures, demand: int) -> float | None:
    return figures.allocation_percent_at[demand]


def _mean_wait(figures: Figures, size: Size) -> float | None:
    return figures.waits[size].mean if size in figures.waits else None


def _wasted(figures: Figures, cause: Cause) -> float:
    return figures.waste.percent(cause)


def _size_title(size: Size) -> str:
    return {
        Size.NONE: "CPU only",
        Size.SHARE: "share",
        Size.ONE: "1 GPU",
        Size.FEW: "2-3 GPUs",
        Size.HALF: "4-7 GPUs",
        Size.NODE: "8 or more",
    }[size]
