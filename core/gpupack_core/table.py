# SPDX-License-Identifier: Apache-2.0
"""Numbers for values, so that arrays can hold them."""

from collections.abc import Callable, KeysView
from copy import copy
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Table(Generic[T]):
    """Gives each distinct value in use a number.

    Uses are counted: when its last one ends, a value's number is for the next new value. So the
    table is never larger than the most values that were in use at once, whatever came and went,
    as taints whose values are times. A copy knows the numbers of its original.
    """

    def __init__(self) -> None:
        self.values: list[T] = []
        """By number; of a number that is not in use, the value that had it last."""
        self._numbers: dict[T, int] = {}
        self._uses: list[int] = []
        self._spare: list[int] = []

    @property
    def in_use(self) -> KeysView[T]:
        """The values that have a number now."""
        return self._numbers.keys()

    def numbers(self) -> dict[T, int]:
        """A copy: the number of each value in use."""
        return self._numbers.copy()

    def number(self, value: T) -> int | None:
        """The value's number; None: it is not in use."""
        return self._numbers.get(value)

    def has_others(self, value: T) -> bool:
        """Whether a value but this one is in use."""
        return len(self._numbers) > (value in self._numbers)

    def uses(self, number: int) -> int:
        """How many of the number have not ended."""
        return self._uses[number]

    def take(self, value: T) -> int:
        """The value's number, which has one use more."""
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
        """The same numbers; either may give new ones without the other."""
        twin = copy(self)
        own = ("values", "_numbers", "_uses", "_spare")
        vars(twin).update({name: getattr(self, name).copy() for name in own})
        return twin

    def where(self, judge: Callable[[T], bool]) -> NDArray[np.bool_]:
        """One truth value per number; of no account for those that are not in use."""
        return np.fromiter(map(judge, self.values), np.bool_, len(self.values))

    def _new(self, value: T) -> int:
        if self._spare:
            number = self._spare.pop()
            self.values[number] = value
            return number
        self.values.append(value)
        self._uses.append(0)
        return len(self.values) - 1
