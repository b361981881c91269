# SPDX-License-Identifier: Apache-2.0
"""Spans of time as a person writes them: 90s, 30m, 2h."""

import re
from collections.abc import Callable
from typing import Final

import click

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_DAYS: Final = 3650
MAX_SECONDS: Final = MAX_DAYS * UNITS["d"]
"""Moments farther away than calendars go cannot be written."""


def seconds(text: str) -> int | None:
    """Of 90s, 30m or 2h; a bare number is of seconds, as manifests have it. None: it is no time."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    return None if found is None else int(found[1]) * UNITS[found[2] or "s"]


def span(
    *, least_seconds: int = 0
) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """A callback of an option, which makes seconds of what was written; None: nothing was."""

    def read(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
        if value is None:
            return None
        found = seconds(value)
        if found is None:
            raise click.BadParameter(f"{value!r} is no time; write 90s, 30m or 2h")
        if found > MAX_SECONDS:
            raise click.BadParameter(f"{value!r} is too long; write at most {MAX_DAYS}d")
        if found < least_seconds:
            raise click.BadParameter(f"{value!r} is too short; write at least {least_seconds}s")
        return found

    return read
