# SPDX-License-Identifier: Apache-2.0
"""Did alerts fire for what was broken, and for nothing else? Pure.

a break      [began, ended]; each of its `expected` must fire in [began, ended]
an alert     fires in [first, last]; it is right where one of its moments is in a break that
             expects or allows it, or within `fades_seconds` after that
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

    def explains(self, alert: "Fired") -> bool:
        """Whether the alert is of this break."""
        return (
            alert.name in self.expected | self.allowed
            and self.began <= alert.first <= self.ended + self.fades_seconds
            and alert.last <= self.ended + self.fades_seconds
        )


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
        if not any(each.explains(alert) for each in broken)
    ]
    return Verdict(tuple(silent), tuple(noise))
