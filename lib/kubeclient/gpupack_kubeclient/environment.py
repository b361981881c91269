# SPDX-License-Identifier: Apache-2.0
"""Settings from environment variables, which agent, extender and operator read at their start.

    environment = Environment(os.environ)
    port = environment.whole("GPUPACK_PLAN_PORT", 8443, most=65535)

An empty variable counts as not set, since that is what an empty value in a manifest means.
pydantic-settings is not used: an exec probe runs every few seconds and reads one path, and
importing that library costs more than the rest of the probe.
"""

import math
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from gpupack_kubeclient import __version__

T = TypeVar("T")

CHART_VERSION: Final = "GPUPACK_CHART_VERSION"
"""The version of the chart that sets the other variables."""

PULL_POLICIES: Final = ("IfNotPresent", "Always", "Never")
"""Kubernetes' policies for pulling an image."""

LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class SettingsInvalid(Exception):
    """A variable is missing or not valid; the message names its value and the allowed values."""


def error_text(error: SettingsInvalid, variables: Mapping[str, str]) -> str:
    """Return the error for the log, with both versions where chart and image differ.

    A field or variable of another version is unknown, or missing, whatever its value.
    """
    chart = variables.get(CHART_VERSION, "")
    if chart in {"", __version__}:
        return str(error)
    return (
        f"{error}; the configuration comes from chart {chart}, and this image is version "
        f"{__version__}: set image.tag to an image of version {chart}, or install chart "
        f"{__version__}"
    )


class Environment:
    """A reader of variables. All methods raise SettingsInvalid."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def required(self, name: str, meaning: str) -> str:
        """Read a variable that has no default; `meaning` says what to set it to."""
        text = self._variables.get(name, "")
        if not text:
            raise SettingsInvalid(f"{name} is not set; set it to {meaning}")
        return text

    def text(self, name: str, default: str) -> str:
        """Read a text."""
        return self._variables.get(name, "") or default

    def words(self, name: str) -> tuple[str, ...]:
        """Read texts that are separated by commas; none where the variable is not set."""
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
        """Read GPUPACK_LOG_LEVEL, in any case; INFO where it is not set."""
        level = self.text("GPUPACK_LOG_LEVEL", "INFO").upper()
        if level not in LOG_LEVELS:
            raise _invalid("GPUPACK_LOG_LEVEL", level, f"one of {', '.join(LOG_LEVELS)}")
        return level

    def parsed(self, name: str, parse: Callable[[str], T], default: T, allowed: str) -> T:
        """Read a value of any other type.

        Args:
            name: name of the variable.
            parse: raises ValueError or KeyError for a value that is not valid.
            default: value where the variable is not set.
            allowed: the allowed values, for the message.
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
            name: name of the variable.
            parse: raises ValueError, whose text says what in the document is not valid.
            default: value where the variable is not set.
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
