# SPDX-License-Identifier: Apache-2.0
"""The taint sets that a pod's tolerations tolerate.

A pod may have hundreds of tolerations and a cluster thousands of taint sets. So a taint is not
matched with one toleration after the other but looked up among all of them. The result is kept
until the taint sets change, since one call needs it several times.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from gpupack_placement.arrays import BoolArray
from gpupack_placement.model import Effect, Taint
from gpupack_placement.selector import Toleration, TolerationOperator
from gpupack_placement.table import Table

_MAX_TOLERATIONS = 64
_MAX_TEXT = 4 << 20
"""Maximum number of characters of all tolerations that are kept."""

Tolerations = tuple[Toleration, ...]
TaintSet = tuple[Taint, ...]


class Tolerated:
    """The taints that a set of tolerations tolerates."""

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._effects: set[Effect | None] = set()
        """Effects that are tolerated for every key; None: every effect."""
        self._keys: set[tuple[str, Effect | None]] = set()
        """Keys and effects that are tolerated with any value."""
        self._values: set[tuple[str, str, Effect | None]] = set()
        for each in tolerations:
            if each.operator is TolerationOperator.EQUAL:
                self._values.add((each.key, each.value, each.effect))
            elif each.key:
                self._keys.add((each.key, each.effect))
            else:
                self._effects.add(each.effect)

    def __contains__(self, taint: Taint) -> bool:
        """Tell whether the taint is tolerated."""
        return any(
            effect in self._effects
            or (taint.key, effect) in self._keys
            or (taint.key, taint.value, effect) in self._values
            for effect in (None, taint.effect)
        )

    def includes_all(self, taints: TaintSet) -> bool:
        """Tell whether a pod may be placed with these taints; PreferNoSchedule never forbids it."""
        return all(taint.effect is Effect.PREFER_NO_SCHEDULE or taint in self for taint in taints)


@dataclass(frozen=True, slots=True)
class Open:
    """The taint sets that a pod tolerates."""

    mask: BoolArray
    """Truth values by number; meaningless for numbers that are not in use."""
    sets: frozenset[TaintSet]
    """The sets themselves, since numbers may be reused."""


class TaintSets(Table[TaintSet]):
    """The taint sets of a cluster's nodes, with the tolerations that they are open to."""

    def __init__(self) -> None:
        super().__init__()
        self._open: OrderedDict[Tolerations, Open] = OrderedDict()
        self._text = 0
        self._last: tuple[Tolerations, Open] | None = None

    def open_to(self, tolerations: Tolerations) -> Open:
        """Return the sets of which all taints are tolerated; the answer must not be changed."""
        if self._last is None or self._last[0] is not tolerations:
            self._last = tolerations, self._cached(tolerations)
        return self._last[1]

    def give_back(self, number: int) -> None:
        """End one use of a number that was taken."""
        super().give_back(number)
        if not self.uses(number):
            self._forget()

    def copy(self) -> Self:
        """Return an independent copy with the same numbers and answers."""
        twin = super().copy()
        vars(twin).update(_open=self._open.copy())
        return twin

    def _cached(self, tolerations: Tolerations) -> Open:
        found = self._open.get(tolerations)
        if found is None:
            found = self._open[tolerations] = self._open_sets(tolerations)
            self._text += _text(tolerations)
            while len(self._open) > _MAX_TOLERATIONS or (
                self._text > _MAX_TEXT and len(self._open) > 1
            ):
                self._text -= _text(self._open.popitem(last=False)[0])
        self._open.move_to_end(tolerations)
        return found

    def _open_sets(self, tolerations: Tolerations) -> Open:
        tolerated = Tolerated(tolerations)
        mask = self.where(tolerated.includes_all)
        open_sets = (taints for taints, number in self.numbers().items() if mask[number])
        return Open(mask, frozenset(open_sets))

    def _new(self, value: TaintSet) -> int:
        self._forget()
        return super()._new(value)

    def _forget(self) -> None:
        self._open.clear()
        self._text, self._last = 0, None


def _text(tolerations: Tolerations) -> int:
    return sum(len(each.key) + len(each.value) for each in tolerations)
