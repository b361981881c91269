# SPDX-License-Identifier: Apache-2.0
"""Durations in the form that users write: 90s, 30m, 2h."""

import re
from collections.abc import Callable
from typing import Final

import click

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_DAYS: Final = 3650
MAX_SECONDS: Final = MAX_DAYS * UNITS["d"]
"""Maximum: later times are beyond the calendar and cannot be written."""


def parse_seconds(text: str) -> int | None:
    """Return seconds of 90s, 30m or 2h; a bare number is in seconds, as in manifests.

    None: invalid.
    """
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    return None if found is None else int(found[1]) * UNITS[found[2] or "s"]


def duration_option(
    *, min_seconds: int = 0
) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """Return an option's callback that converts its text to seconds; None: it is absent."""

    def read(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
        if value is None:
            return None
        found = parse_seconds(value)
        if found is None:
            raise click.BadParameter(f"{value!r} is not a duration; write 90s, 30m or 2h")
        if found > MAX_SECONDS:
            raise click.BadParameter(f"{value!r} is too long; write at most {MAX_DAYS}d")
        if found < min_seconds:
            raise click.BadParameter(f"{value!r} is too short; write at least {min_seconds}s")
        return found

    return read
