# SPDX-License-Identifier: Apache-2.0
"""What a conversion lost or replaced, with what to do instead."""

import dataclasses
import enum
from typing import Any, Final

import msgspec

MAX_VALUE: Final = 60
"""Maximum characters of a value in a line of the report."""

MAX_FINDINGS: Final = 100
"""Maximum lines about one source; the others are counted."""


class Level(enum.StrEnum):
    """Whether the user must act."""

    DROPPED = "dropped"
    """The object behaves differently until the user acts."""
    NOTE = "note"
    """gpupack replaces the field by its own behaviour, or the field has no effect."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One field that was not converted unchanged.

    Attributes:
        level: whether the user must act.
        path: field of the source, such as spec.runPolicy.backoffLimit.
        value: value of the field, shortened.
        advice: what holds in the result, and what to do instead.
    """

    level: Level
    path: str
    value: str
    advice: str

    def line(self, source: str) -> str:
        """Return the line for a user."""
        value = f" = {self.value}" if self.value else ""
        return f"{self.level}: {source}: {self.path.removeprefix('.')}{value}: {self.advice}"


class NotConverted(Exception):
    """A source has no equivalent; nothing is written for it.

    Args:
        path: field that prevents the conversion.
        value: its value.
        advice: what to do instead.
    """

    def __init__(self, path: str, value: Any, advice: str) -> None:
        super().__init__(advice)
        self.finding = Finding(Level.DROPPED, path, shown(value), advice)


class Report:
    """The findings about one source, in the order of discovery."""

    def __init__(self) -> None:
        self.findings = list[Finding]()
        self.omitted = 0

    def dropped(self, path: str, value: Any, advice: str) -> None:
        """Record a field whose effect is lost until the user acts."""
        self._add(Finding(Level.DROPPED, path, shown(value), advice))

    def note(self, path: str, value: Any, advice: str) -> None:
        """Record a field that gpupack replaces, or that has no effect."""
        self._add(Finding(Level.NOTE, path, shown(value), advice))

    def _add(self, finding: Finding) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)
        else:
            self.omitted += 1


def shown(value: Any) -> str:
    """Return a value as short text; empty for None."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"
