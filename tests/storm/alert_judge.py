# SPDX-License-Identifier: Apache-2.0
"""Did alerts fire for what was broken, and for nothing else? Pure.

a break      [began, ended]; each of its `expected` must fire in [began, ended]
an alert     fires in [first, last]; it is right where each of its moments is in a break that
             expects or allows it, or within `fades_seconds` after one
"""

import dataclasses
from collections.abc import Iterable, Sequence


@dataclasses.dataclass(frozen=True)
class Broken:
    """What was broken, and when; seconds since the epoch."""

    name: str
    began: float
    ended: float
    expected: frozenset[str]
    allowed: frozenset[str] = frozenset()
    fades_seconds: float = 0.0

    @property
    def fades(self) -> float:
        """Until when its alerts may fire."""
        return self.ended + self.fades_seconds

    def names(self, alert: "Fired") -> bool:
        """Whether the alert may be of this break, or of this one as well."""
        named = alert.name in self.expected | self.allowed
        return named and alert.first <= self.fades and self.began <= alert.last


@dataclasses.dataclass(frozen=True)
class Fired:
    """One alert, with the labels that it had, from the first to the last moment of firing."""

    name: str
    labels: str
    first: float
    last: float


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Empty where all is well."""

    silent: tuple[str, ...]
    """BREAK: ALERT that did not fire for it."""
    noise: tuple[str, ...]
    """ALERT{labels} that nothing explains."""


def judge(broken: Sequence[Broken], fired: Iterable[Fired]) -> Verdict:
    """Compare them."""
    alerts = list(fired)
    silent = [
        f"{each.name}: {alert}"
        for each in broken
        for alert in sorted(each.expected)
        if not any(
            found.name == alert and found.first <= each.ended and found.last >= each.began
            for found in alerts
        )
    ]
    noise = [
        f"{alert.name}{{{alert.labels}}} at {alert.first:.0f} to {alert.last:.0f}"
        for alert in alerts
        if not explained(alert, broken)
    ]
    return Verdict(tuple(silent), tuple(noise))


def explained(alert: Fired, broken: Iterable[Broken]) -> bool:
    """Whether it is of breaks of which each came before the alert of the last could fade."""
    until = alert.first
    for each in sorted(filter(lambda each: each.names(alert), broken), key=lambda each: each.began):
        if each.began <= until <= each.fades:
            until = each.fades
    return alert.first < until and alert.last <= until
