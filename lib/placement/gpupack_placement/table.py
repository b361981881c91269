# SPDX-License-Identifier: Apache-2.0
"""Numbers for values, so that arrays can hold them."""

from collections.abc import Callable, KeysView
from copy import copy
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Table(Generic[T]):
    """A table that gives each distinct value in use a number.

    Uses are counted: when its last use ends, a value's number becomes free for the next new value.
    So the table is never larger than the largest number of values in use at once, even if values
    come and go, such as taints whose values are times. A copy knows the numbers of its original.
    """

    def __init__(self) -> None:
        self.values: list[T] = []
        """Values by number; for a number that is not in use, its last value."""
        self._numbers: dict[T, int] = {}
        self._uses: list[int] = []
        self._spare: list[int] = []

    @property
    def in_use(self) -> KeysView[T]:
        """The values in use."""
        return self._numbers.keys()

    def numbers(self) -> dict[T, int]:
        """Return a copy of the numbers of the values in use."""
        return self._numbers.copy()

    def number(self, value: T) -> int | None:
        """Return the value's number; None: it is not in use."""
        return self._numbers.get(value)

    def has_others(self, value: T) -> bool:
        """Tell whether a value other than this one is in use."""
        return len(self._numbers) > (value in self._numbers)

    def uses(self, number: int) -> int:
        """Return how many uses of the number have not ended."""
        return self._uses[number]

    def take(self, value: T) -> int:
        """Return the value's number and count one more use."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = self._new(value)
        self._uses[number] += 1
        return number

    def give_back(self, number: int) -> None:
        """End one use of a number that was taken."""
        self._uses[number] -= 1
        if not self._uses[number]:
            del self._numbers[self.values[number]]
            self._spare.append(number)

    def copy(self) -> Self:
        """Return an independent copy with the same numbers."""
        twin = copy(self)
        own = ("values", "_numbers", "_uses", "_spare")
        vars(twin).update({name: getattr(self, name).copy() for name in own})
        return twin

    def where(self, predicate: Callable[[T], bool]) -> NDArray[np.bool_]:
        """Return one truth value per number; meaningless for numbers that are not in use."""
        return np.fromiter(map(predicate, self.values), np.bool_, len(self.values))

    def _new(self, value: T) -> int:
        if self._spare:
            number = self._spare.pop()
            self.values[number] = value
            return number
        self.values.append(value)
        self._uses.append(0)
        return len(self.values) - 1
