# SPDX-License-Identifier: Apache-2.0
"""Compares a figure of two policies seed by seed: all policies see the same pods under a seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from gpupack_simulator.output.comparison import confidence_interval

CONFIDENCE: Final = 0.95
MIN_SHOWN: Final = 0.0005
"""Waits below it, under both policies, are shown as 0."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure to compare and its format. `alone`: show the difference without the figure."""

    name: str
    digits: int
    more_is_better: bool
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences between our policy and the base by seed."""

    figure: Figure
    ours: float
    base: float
    each: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return mean(self.each)

    def worse_at(self, confidence: float) -> bool:
        """Return whether it is worse by more than the interval of this confidence."""
        loss = -self.mean if self.figure.more_is_better else self.mean
        return loss > confidence_interval(self.each, confidence)


def difference(figure: Figure, ours: Sequence[float], base: Sequence[float]) -> Difference:
    """Return the differences of two policies with the same seeds, two or more."""
    each = tuple(a - b for a, b in zip(ours, base, strict=True))
    return Difference(figure, mean(ours), mean(base), each)


def judged(one: Difference, figures: int) -> str:
    """Return the text of a cell, such as «94.56 (+0.12 ± 0.14) ↑».

    ↑: worse beyond the interval. ↑↑: beyond it too when it is widened for that many figures
    (Bonferroni), so that in one table of twenty a single one is so by chance.
    """
    digits = one.figure.digits
    if not one.figure.more_is_better and max(one.ours, one.base) < MIN_SHOWN:
        return "0"
    noise = confidence_interval(one.each, CONFIDENCE)
    text = f"{one.mean:+.{digits}f} ± {noise:.{digits}f}"
    if not one.figure.alone:
        text = f"{one.ours:.{digits}f} ({text})"
    sure = one.worse_at(1 - (1 - CONFIDENCE) / figures)
    mark = " ↑↑" if sure else " ↑" if one.worse_at(CONFIDENCE) else ""
    return f"{text}{mark}"
