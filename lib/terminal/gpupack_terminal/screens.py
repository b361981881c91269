# SPDX-License-Identifier: Apache-2.0
"""Decides what may be written to a stream; the table of the package says by which settings."""

import codecs
import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Final, TextIO

USUAL_COLUMNS: Final = 80
USUAL_LINES: Final = 24
PLAIN_LOCALES: Final = frozenset({"C", "POSIX"})


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """Columns and lines of a terminal."""

    columns: int = USUAL_COLUMNS
    lines: int = USUAL_LINES


@dataclasses.dataclass(frozen=True, slots=True)
class Screen:
    """What a stream can show.

    Attributes:
        size: of the terminal; None: a pipe or a file, whose lines end nowhere.
        colour: whether colours are written.
        live: whether a picture can be drawn over the one before.
        encoding: of the text that is written.
    """

    size: Size | None
    colour: bool
    live: bool
    encoding: str

    @property
    def terminal(self) -> bool:
        """Whether a person reads it on a terminal."""
        return self.size is not None

    @property
    def columns(self) -> int | None:
        """Characters of a line; None: as many as there are."""
        return self.size.columns if self.size else None


def screen(stream: TextIO, environ: Mapping[str, str] | None = None) -> Screen:
    """Look at a stream, and decide."""
    environ = os.environ if environ is None else environ
    return decide_screen(size_of(stream), getattr(stream, "encoding", None) or "utf-8", environ)


def size_of(stream: TextIO) -> Size | None:
    """The size of a terminal; None: the stream is none."""
    if not stream.isatty():
        return None
    with contextlib.suppress(OSError, ValueError):
        found = os.get_terminal_size(stream.fileno())
        return Size(found.columns or USUAL_COLUMNS, found.lines or USUAL_LINES)
    return Size()


def decide_screen(size: Size | None, encoding: str, environ: Mapping[str, str]) -> Screen:
    """Decide by facts alone."""
    dumb = environ.get("TERM") == "dumb"
    terminal = size is not None
    if size is not None:
        size = Size(
            _positive(environ, "COLUMNS") or size.columns, _positive(environ, "LINES") or size.lines
        )
    plain = terminal and _has_plain_locale(environ)
    return Screen(
        size=size,
        colour=_has_colour(environ, usual=terminal and not dumb),
        live=terminal and not dumb,
        encoding="ascii" if plain else codecs.lookup(encoding).name,
    )


def _has_colour(environ: Mapping[str, str], *, usual: bool) -> bool:
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in {"", "0"} for name in ("CLICOLOR_FORCE", "FORCE_COLOR")):
        return True
    return usual and environ.get("CLICOLOR") != "0"


def _has_plain_locale(environ: Mapping[str, str]) -> bool:
    """Whether the user says so. Where nothing is set, as in most containers, Python takes UTF-8."""
    if environ.get("PYTHONIOENCODING") or environ.get("PYTHONUTF8") == "1":
        return False
    named = (environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next((each for each in named if each), "") in PLAIN_LOCALES


def _positive(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return (
        int(text) or None
        if text.isascii() and text.isdigit() and len(text) < len("10000")
        else None
    )
