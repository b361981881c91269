# SPDX-License-Identifier: Apache-2.0
"""Figures and times as people read them, the same as on the page (dashboard/src/format.ts).

    percent        2.3%  13%        of what is given out, or of the time for which a GPU is busy
    memory         79.6 GiB         2^30 bytes, as manifests write it; the REST API has 10^9 (GB)
    GPU-hours, kWh 1,234.6          one digit after the point, cost two; a small one has two in all
    power          2,100 W
    temperature    71 °C
    duration, age  43s 12m 3h20m 5d2h

Halves go up. `tests/helpers/figures.json` holds the cases that both languages are held to.
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
"""Percent from which on there is nothing behind the point."""


def percent(value: float | None) -> str:
    """Whole from 10 on; below with one digit behind the point, where that is not 0."""
    if value is None:
        return UNKNOWN
    return f"{whole(value) if value >= WHOLE_FROM else _trimmed(figure(value))}%"


def whole(value: float) -> str:
    """Rounded, in groups of three."""
    return _fixed(value, 0)


def figure(value: float | None, digits: int = 1) -> str:
    """With so many digits behind the point; what would be 0 by that has two that are not."""
    if value is None:
        return UNKNOWN
    if value and abs(value) < 10**-digits:
        exact = Decimal(repr(value))
        return _trimmed(_fixed(value, 1 - exact.adjusted()))
    return _fixed(value, digits)


def memory(mebibytes: float) -> str:
    """In GiB."""
    return f"{_trimmed(_fixed(mebibytes / MIB_PER_GIB, 1))} GiB"


def mebibytes(gigabytes: float) -> int:
    """Of GB of 10^9 bytes, as the REST API tells them, to three digits."""
    return round(gigabytes * BYTES_PER_GB / BYTES_PER_MIB)


def temperature(celsius: float | None) -> str:
    """Rounded."""
    return UNKNOWN if celsius is None else f"{whole(celsius)} °C"


def power(watts: float | None) -> str:
    """Rounded."""
    return UNKNOWN if watts is None else f"{whole(watts)} W"


def duration(seconds: float) -> str:
    """In its largest unit and the next smaller one; parts of the last are left out."""
    left = max(int(seconds), 0)
    if left < MINUTE:
        return f"{left}s"
    if left < HOUR:
        return f"{left // MINUTE}m"
    if left < DAY:
        return _joined(left // HOUR, "h", left % HOUR // MINUTE, "m")
    return _joined(left // DAY, "d", left % DAY // HOUR, "h")


def age(moment: dt.datetime | str | None, now: dt.datetime) -> str:
    """How long ago that was; empty: it is not known."""
    at = dt.datetime.fromisoformat(moment) if isinstance(moment, str) and moment else moment
    return duration((now - at).total_seconds()) if isinstance(at, dt.datetime) else ""


def count(number: int, noun: str) -> str:
    """«1 GPU», «1,200 GPUs»."""
    return f"{whole(number)} {noun}{'' if number == 1 else 's'}"


def queued(position: int, waiting: int) -> str:
    """Which of those that wait in the whole cluster, those that nobody may list among them."""
    wait = "waits" if waiting == 1 else "wait"
    return f"Number {whole(position)} of {whole(waiting)} that {wait} in the cluster."


def _fixed(value: float, digits: int) -> str:
    """Of the decimal that is printed, not of the binary value: JavaScript's Intl does it so."""
    rounded = Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{rounded or abs(rounded):,f}"


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _joined(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}" + (f"{minor}{minor_unit}" if minor else "")
