# SPDX-License-Identifier: Apache-2.0
"""Errors of building images.

ImagesError
├── CommandFailed       a program ended with an error
├── UnknownImage        the command line names an image that the Dockerfile does not build
└── NoEngine            neither Docker nor buildah can be used
"""

from collections.abc import Sequence
from pathlib import Path

WRAPPERS = ("sudo", "env")


class ImagesError(Exception):
    """The root of this tree; its text is for the user."""


class CommandFailed(ImagesError):
    """A program ended with an error."""

    def __init__(self, *, command: Sequence[str], status: int, log: Path, tail: str) -> None:
        program = next(part for part in command if part not in WRAPPERS and "=" not in part)
        super().__init__(f"{program} ended with status {status} (all of it: {log})\n{tail}")


class UnknownImage(ImagesError):
    """The command line names an image that the Dockerfile does not build."""


class NoEngine(ImagesError):
    """Neither Docker nor buildah can be used."""
