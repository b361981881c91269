# SPDX-License-Identifier: Apache-2.0
"""Points in time and durations as published traces write them.

A point in time is a number in a unit (`s`, `ms` …), `iso` (ISO 8601, with or without fractions and
zone), or a format of strptime. A duration is a number in a unit, or `clock`: [D-]HH:MM:SS or MM:SS,
with or without fractions, as Slurm writes it.
"""

import re
from datetime import UTC, datetime
from math import isfinite
from typing import Final

from gpupack_simulator.errors import SimulatorError

SECONDS_BY_UNIT: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
ISO: Final = "iso"
CLOCK: Final = "clock"
DURATION_FORMS: Final = (*SECONDS_BY_UNIT, CLOCK)

_MAX_SECONDS: Final = 1e11
"""The year 5138; a later point in time has another unit than seconds."""
_CLOCK: Final = re.compile(
    r"(?:(?:(\d{1,6})-)?(\d{1,6}):)?(\d{1,4}):(\d{2}(?:\.\d{1,9})?)", re.ASCII
)


class NotATime(SimulatorError):
    """A cell that is not a point in time, or not a duration, of the given form."""


def is_number_form(form: str) -> bool:
    """Tell whether cells of this form are numbers."""
    return form in SECONDS_BY_UNIT


def seconds_at(cell: str | float, form: str) -> float:
    """Return the seconds from a fixed point in time, the same for all cells of a form.

    Raises:
        NotATime: the cell, and what may help.
    """
    if isinstance(cell, str):
        return _read(cell, form)
    seconds = cell * SECONDS_BY_UNIT[form]
    if not isfinite(cell):
        raise NotATime(f"{cell} is no time")
    if abs(seconds) > _MAX_SECONDS:
        raise NotATime(
            f"{cell:.0f} {form} are {seconds / 31_556_952:,.0f} years; {_smaller_unit(cell)}"
        )
    return seconds


def _smaller_unit(cell: float) -> str:
    fitting = (u for u in ("ms", "us", "ns") if abs(cell) * SECONDS_BY_UNIT[u] <= _MAX_SECONDS)
    unit = next(fitting, None)
    return "no unit makes it a time" if unit is None else f"say `time: {unit}` if that is its unit"


def _read(cell: str, form: str) -> float:
    try:
        time = datetime.fromisoformat(cell) if form == ISO else datetime.strptime(cell, form)  # noqa: DTZ007  # a form may know the zone
    except ValueError:
        expected = "ISO 8601" if form == ISO else f"{form!r}"
        raise NotATime(f"{cell!r} is not a time as in {expected}{_iso_hint(cell, form)}") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _iso_hint(cell: str, form: str) -> str:
    if form == ISO:
        return ""
    try:
        datetime.fromisoformat(cell)
    except ValueError:
        return ""
    return "; `time: iso` reads it"


def duration_seconds(cell: str | float, form: str) -> float:
    """Return a duration in seconds.

    Raises:
        NotATime: the cell is not a duration of this form.
    """
    if not isinstance(cell, str):
        if not isfinite(cell):
            raise NotATime(f"the job lasts {cell} {form}")
        return cell * SECONDS_BY_UNIT[form]
    found = _CLOCK.fullmatch(cell.strip())
    if found is None:
        raise NotATime(f"{cell!r} is not a duration such as 01:30:00 or 2-01:30:00")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def wrong_time_form(form: str) -> str | None:
    """Return why no cell can be of this form; None: the form is valid."""
    if form == ISO or form in SECONDS_BY_UNIT:
        return None
    if "%" not in form:
        units = ", ".join(SECONDS_BY_UNIT)
        return f"is no unit ({units}), not iso, and no format such as %Y-%m-%d %H:%M:%S"
    try:
        datetime.strptime(datetime.now(UTC).strftime(form), form)  # noqa: DTZ007  # a form may know the zone
    except re.error:
        return "names a part of the time twice"
    except ValueError as error:
        return str(error)
    return None
