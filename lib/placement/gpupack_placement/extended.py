# SPDX-License-Identifier: Apache-2.0
"""Resources other than CPU, memory, pods and GPUs.

Examples are devices of other plugins (`rdma/hca`), huge pages and local disk: a node offers an
amount of each by name, and a worker takes an amount. They decide which nodes a request fits on,
never which of these is the best.

Their names are data, not fields: clusters differ in them. So each name that a node offers has
columns of its own, by row, and names that no node offers are not counted. A request that names none
of them costs nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from gpupack_devices.errors import DecisionError

Amounts = tuple[tuple[str, int], ...]
"""Positive amounts by name, sorted by name. Amounts of memory and disk are in bytes."""

NO_AMOUNTS: Final[Amounts] = ()

MAX_AMOUNT: Final = 1 << 50
"""The maximum amount, a pebibyte; sums over the pods of a node stay within 64 bits."""

MAX_NAMES: Final = 256
"""Maximum number of names with columns; a node offers nothing of names beyond it. Node agents and
device plugins choose the names, tenants do not."""

_BYTES: Final = ("ephemeral-storage", "hugepages-")
_UNITS: Final = (("GiB", 30), ("MiB", 20), ("KiB", 10))

_Column = NDArray[np.int64]


def amounts(of: Mapping[str, int]) -> Amounts:
    """Return amounts in canonical form; amounts of 0 are left out."""
    return tuple(sorted((name, amount) for name, amount in of.items() if amount))


def require_amounts(given: Amounts, *, of: str, error: type[DecisionError]) -> None:
    """Raise the error for amounts that are not in canonical form, or that are too large."""
    if list(given) != sorted(dict(given).items()):
        raise error(f"{of}: resources are not sorted by name, or one is named twice: {given}")
    for name, amount in given:
        if not name:
            raise error(f"{of}: a resource has no name")
        if not 0 < amount <= MAX_AMOUNT:
            raise error(f"{of}: {amount} of {name} is not in 1..{MAX_AMOUNT}")


def amount_text(name: str, amount: int) -> str:
    """Return «2», or «100 GiB» for an amount in bytes; the text is exact."""
    if not amount or not name.startswith(_BYTES):
        return str(amount)
    for unit, bits in _UNITS:
        if not amount % (1 << bits):
            return f"{amount >> bits} {unit}"
    return f"{amount} bytes"


@dataclass(slots=True)
class ExtendedColumns:
    """The amounts that each row offers and uses of each resource.

    Usage of a name in a row that offers none of it is not counted: nothing is free there.
    """

    offered: dict[str, _Column] = field(default_factory=dict)
    used: dict[str, _Column] = field(default_factory=dict)
    """Used amounts by name; a name that is missing is not used anywhere."""

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)(_copied(self.offered), _copied(self.used))

    def overlay(self) -> Self:
        """Return a copy in which usage is independent and the offered amounts are shared."""
        return type(self)(self.offered, _copied(self.used))

    def emptied(self) -> Self:
        """Return a copy without usage; the offered amounts are shared."""
        return type(self)(self.offered)

    def grown(self, rows: int) -> Self:
        """Return a copy with more rows."""
        return type(self)(_grown(self.offered, rows), _grown(self.used, rows))

    def clear_row(self, row: int) -> None:
        """Remove the node from this row."""
        for name in [name for name, column in self.offered.items() if column[row]]:
            self.offered[name][row] = 0
            if name in self.used:
                self.used[name][row] = 0
            if not self.offered[name].any():
                del self.offered[name]
                self.used.pop(name, None)

    def write_row(self, row: int, offered: Amounts, *, rows: int) -> None:
        """Set what a row's node offers; the row was cleared before."""
        for name, amount in offered:
            if name not in self.offered:
                if len(self.offered) >= MAX_NAMES:
                    continue
                self.offered[name] = np.zeros(rows, np.int64)
            self.offered[name][row] = amount

    def charge(self, row: int, taken: Amounts, *, sign: int) -> None:
        """Count what a placement takes (`sign` 1) or gives back (-1)."""
        for name, amount in taken:
            offered = self.offered.get(name)
            if offered is not None and offered[row]:
                if name not in self.used:
                    self.used[name] = np.zeros(len(offered), np.int64)
                self.used[name][row] += sign * amount

    def offers(self, name: str, at: Any, *, like: NDArray[Any]) -> _Column:
        """Return how much each of these rows offers; `like`: any column of all rows."""
        column = self.offered.get(name)
        return np.zeros(len(like[at]), np.int64) if column is None else column[at]

    def free(self, name: str, at: Any, *, like: NDArray[Any]) -> _Column:
        """Return each row's free amount, never negative; `like`: any column of all rows."""
        offered, used = self.offers(name, at, like=like), self.used.get(name)
        return offered if used is None else np.maximum(offered - used[at], 0)

    def missing(self, row: int, wanted: Amounts) -> Iterator[tuple[str, int, int]]:
        """Yield name, wanted and free amount of each resource that the row lacks."""
        for name, amount in wanted:
            offered, used = self.offered.get(name), self.used.get(name)
            left = 0 if offered is None else int(offered[row])
            left = max(left - (0 if used is None else int(used[row])), 0)
            if amount > left:
                yield name, amount, left


def _copied(columns: dict[str, _Column]) -> dict[str, _Column]:
    return {name: column.copy() for name, column in columns.items()}


def _grown(columns: dict[str, _Column], rows: int) -> dict[str, _Column]:
    return {name: np.append(c, np.zeros(rows - len(c), np.int64)) for name, c in columns.items()}
