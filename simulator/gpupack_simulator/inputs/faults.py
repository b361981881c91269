# SPDX-License-Identifier: Apache-2.0
"""Collects what is wrong in one file."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpupack_simulator.errors import Fault, InvalidInput

T = TypeVar("T")


class Faults:
    """Of one file; `check` raises them all at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._faults: list[Fault] = []

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, line: int, column: str, message: str) -> None:
        """`line` 0: the file as a whole."""
        self._faults.append(Fault(line, column, message))

    def fatal(self, message: str, *, line: int = 0, column: str = "") -> InvalidInput:
        """To raise at once: nothing after this can be read."""
        self.add(line, column, message)
        return InvalidInput(self.path.name, self._faults)

    def check(self) -> None:
        """Raises InvalidInput if anything was wrong."""
        if self._faults:
            raise InvalidInput(self.path.name, self._faults)


def converted(value: Any, into: type[T], *, strict: bool = True) -> T | str:
    """The value as the type, or what is wrong with it, without msgspec's `$` for the path."""
    try:
        return msgspec.convert(value, into, strict=strict)
    except msgspec.ValidationError as error:
        return str(error)
