# SPDX-License-Identifier: Apache-2.0
"""A collection of the faults in one file."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpupack_simulator.errors import Fault, InvalidInput

T = TypeVar("T")


class Faults:
    """The faults of one file; `check` raises them all at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._faults: list[Fault] = []

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, line: int, column: str, message: str) -> None:
        """Add a fault; `line` 0: it concerns the file as a whole."""
        self._faults.append(Fault(line, column, message))

    def fatal(self, message: str, *, line: int = 0, column: str = "") -> InvalidInput:
        """Return an error to raise at once, since nothing after it can be read."""
        self.add(line, column, message)
        return InvalidInput(self.path.name, self._faults)

    def check(self) -> None:
        """Raise InvalidInput if there are faults."""
        if self._faults:
            raise InvalidInput(self.path.name, self._faults)


def converted(value: Any, into: type[T], *, strict: bool = True) -> T | str:
    """Return the value as the type, or its fault without msgspec's `$` for the path."""
    try:
        return msgspec.convert(value, into, strict=strict)
    except msgspec.ValidationError as error:
        return str(error)
