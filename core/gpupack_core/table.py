# SPDX-License-Identifier: Apache-2.0
"""Numbers for values, so that arrays can hold them."""

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Table(Generic[T]):
    """Gives each distinct value a number for good, so that copies of a cluster can share it."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        """The value's number, a new one on first sight."""
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            self.values.append(value)
        return self._numbers[value]

    def where(self, judge: Callable[[T], bool]) -> NDArray[np.bool_]:
        """One truth value per number."""
        return np.fromiter(map(judge, self.values), np.bool_, len(self.values))
