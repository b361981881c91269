# SPDX-License-Identifier: Apache-2.0
"""Figures and times for users, the same as on the page (apiserver/dashboard/src/format.ts).

    percent        2.3%  13%        of what is allocated, or of the time for which a GPU is busy
    memory         79.6 GiB         2^30 bytes, as in manifests; the REST API has 10^9 (GB)
    GPU-hours, kWh 1,234.6          one digit after the point, cost two; a small one has two in all
    power          2,100 W
    temperature    71 °C
    duration, age  43s 12m 3h20m 5d2h

Halves are rounded up. `tests/helpers/figures.json` has the test cases for both languages.
"""

import datetime as dt
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

UNKNOWN: Final = "unknown"
MIB_PER_GIB: Final = 1 << 10
BYTES_PER_GB: Final = 10**9
BYTES_PER_MIB: Final = 1 << 20

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

WHOLE_FROM: Final = 10
"""Minimum percent without digits after the point."""


def percent(value: float | None) -> str:
    """Return a percentage: whole from 10 on; below with one digit, where that is not 0."""
    if value is None:
        return UNKNOWN
    return f"{whole(value) if value >= WHOLE_FROM else _trimmed(figure(value))}%"


def whole(value: float) -> str:
    """Return a rounded number, in groups of three digits."""
    return _fixed(value, 0)


def figure(value: float | None, digits: int = 1) -> str:
    """Return a number with `digits` after the point; one that would be 0 gets two digits."""
    if value is None:
        return UNKNOWN
    if value and abs(value) < 10**-digits:
        exact = Decimal(repr(value))
        return _trimmed(_fixed(value, 1 - exact.adjusted()))
    return _fixed(value, digits)


def memory(mebibytes: float) -> str:
    """Return memory in GiB."""
    return f"{_trimmed(_fixed(mebibytes / MIB_PER_GIB, 1))} GiB"


def mebibytes(gigabytes: float) -> int:
    """Return MiB of GB of 10^9 bytes, in which the REST API reports memory to three digits."""
    return round(gigabytes * BYTES_PER_GB / BYTES_PER_MIB)


def temperature(celsius: float | None) -> str:
    """Return a rounded temperature."""
    return UNKNOWN if celsius is None else f"{whole(celsius)} °C"


def power(watts: float | None) -> str:
    """Return a rounded power."""
    return UNKNOWN if watts is None else f"{whole(watts)} W"


def duration(seconds: float) -> str:
    """Return a duration in its largest unit and the next smaller one, rounded down."""
    left = max(int(seconds), 0)
    if left < MINUTE:
        return f"{left}s"
    if left < HOUR:
        return f"{left // MINUTE}m"
    if left < DAY:
        return _joined(left // HOUR, "h", left % HOUR // MINUTE, "m")
    return _joined(left // DAY, "d", left % DAY // HOUR, "h")


def age(moment: dt.datetime | str | None, now: dt.datetime) -> str:
    """Return how long ago a time was; empty: unknown."""
    at = dt.datetime.fromisoformat(moment) if isinstance(moment, str) and moment else moment
    return duration((now - at).total_seconds()) if isinstance(at, dt.datetime) else ""


def count(number: int, noun: str) -> str:
    """Return text such as «1 GPU», «1,200 GPUs»."""
    return f"{whole(number)} {noun}{'' if number == 1 else 's'}"


def queued(position: int, waiting: int) -> str:
    """Return a position among all that wait in the cluster, including hidden namespaces."""
    wait = "waits" if waiting == 1 else "wait"
    return f"Number {whole(position)} of {whole(waiting)} that {wait} in the cluster."


def _fixed(value: float, digits: int) -> str:
    """Round the printed decimal, not the binary value, as JavaScript's Intl does."""
    rounded = Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{rounded or abs(rounded):,f}"


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _joined(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}" + (f"{minor}{minor_unit}" if minor else "")
