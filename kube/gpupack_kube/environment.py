# SPDX-License-Identifier: Apache-2.0
"""Settings from environment variables, as agent, extender and operator read them at their start.

    environment = Environment(os.environ)
    port = environment.whole("GPUPACK_PLAN_PORT", 8443, most=65535)

A variable that is set to nothing counts as not set: that is what a manifest with an empty value
means. pydantic-settings was not taken: importing it costs an exec probe, which reads one path every
few seconds, more than the rest of the probe.
"""

import math
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

T = TypeVar("T")

PULL_POLICIES: Final = ("IfNotPresent", "Always", "Never")
"""When a node pulls an image, as Kubernetes knows it."""

LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class SettingsInvalid(Exception):
    """A variable is missing or cannot be used; the message says its value and what it may be."""


class Environment:
    """Reads variables. All methods raise SettingsInvalid."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def required(self, name: str, meaning: str) -> str:
        """Read what has no default; `meaning` says what to set it to."""
        text = self._variables.get(name, "")
        if not text:
            raise SettingsInvalid(f"{name} is not set; set it to {meaning}")
        return text

    def text(self, name: str, default: str) -> str:
        """Read a text."""
        return self._variables.get(name, "") or default

    def words(self, name: str) -> tuple[str, ...]:
        """Read texts that commas separate; none where it is not set."""
        return tuple(word for word in self._variables.get(name, "").split(",") if word)

    def path(self, name: str, default: str) -> pathlib.Path:
        """Read a path."""
        return pathlib.Path(self.text(name, default))

    def whole(self, name: str, default: int, *, least: int = 1, most: int | None = None) -> int:
        """Read a whole number between two bounds, both allowed."""

        def parse(text: str) -> int:
            number = int(text)
            if number < least or (most is not None and number > most):
                raise ValueError(text)
            return number

        allowed = f"{least} or more" if most is None else f"{least} to {most}"
        return self.parsed(name, parse, default, f"a whole number, {allowed}")

    def seconds(
        self, name: str, default: float, *, least: float = 0.0, most: float = math.inf
    ) -> float:
        """Read a finite time in seconds: more than 0, between two bounds, both allowed."""

        def parse(text: str) -> float:
            seconds = float(text)
            if not (0 < seconds <= most and seconds >= least and math.isfinite(seconds)):
                raise ValueError(text)
            return seconds

        lower = f"{least:g} or more" if least else "more than 0"
        upper = f", at most {most:g}" if math.isfinite(most) else ""
        return self.parsed(name, parse, default, f"seconds, {lower}{upper}")

    def choice(self, name: str, choices: Iterable[T], default: T) -> T:
        """Read one of several words."""
        words = {str(choice): choice for choice in choices}
        return self.parsed(name, words.__getitem__, default, f"one of {', '.join(words)}")

    def log_level(self) -> str:
        """GPUPACK_LOG_LEVEL, in any case: how much is said, INFO if not set."""
        level = self.text("GPUPACK_LOG_LEVEL", "INFO").upper()
        if level not in LOG_LEVELS:
            raise _invalid("GPUPACK_LOG_LEVEL", level, f"one of {', '.join(LOG_LEVELS)}")
        return level

    def parsed(self, name: str, parse: Callable[[str], T], default: T, allowed: str) -> T:
        """Read anything else.

        Args:
            name: of the variable.
            parse: raises ValueError or KeyError for what cannot be used.
            default: where it is not set.
            allowed: what it may be, for the message.
        """
        text = self._variables.get(name, "")
        if not text:
            return default
        try:
            return parse(text)
        except (ValueError, KeyError) as error:
            raise _invalid(name, text, allowed) from error

    def stated(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """Read a document.

        Args:
            name: of the variable.
            parse: raises ValueError, whose text says what in the document cannot be used.
            default: where it is not set.
        """
        text = self._variables.get(name, "")
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise SettingsInvalid(f"{name} is not valid: {error}") from error


def _invalid(name: str, text: str, allowed: str) -> SettingsInvalid:
    return SettingsInvalid(f"{name}={text!r} is not valid; set it to {allowed}")
