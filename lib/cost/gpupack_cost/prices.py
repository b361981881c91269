# SPDX-License-Identifier: Apache-2.0
"""Prices of a GPU-hour by model, with the time from which they are valid."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

from gpupack_cost.errors import InvalidPrices
from gpupack_cost.labels import parse_label
from gpupack_devices.errors import InvalidRequest
from gpupack_devices.models import matches_model, require_model, words

ANY_MODEL: Final = "*"
"""The key for every model that has no price of its own."""


class Prices:
    """One price list; immutable except for a cache.

    If a GPU's model matches several names, the one with the most words counts: `A100-80GB` before
    `A100`. A model that matches none has the price of `*`; without `*` its price is unknown.

    Args:
        per_gpu_hour: prices by model as users write it, or `*`.

    Raises:
        InvalidPrices: a name is no model; a price is negative or not finite.
    """

    def __init__(self, per_gpu_hour: Mapping[str, float]) -> None:
        for model, price in per_gpu_hour.items():
            _check(model, price)
        self.per_gpu_hour = dict(per_gpu_hour)
        named = per_gpu_hour.keys() - {ANY_MODEL}
        self._names = sorted(named, key=lambda name: (-len(words(name)), name))
        self._known: dict[str, float | None] = {}

    def of(self, label: str) -> float | None:
        """Return the price of one GPU for an hour; None: no price is set."""
        if label not in self._known:
            model, memory = parse_label(label)
            found = (name for name in self._names if matches_model(name, model, memory))
            self._known[label] = self.per_gpu_hour.get(next(found, ANY_MODEL))
        return self._known[label]


@dataclass(frozen=True, slots=True)
class Tariff:
    """A price list and the time from which it is valid, in seconds since the epoch."""

    since: float
    currency: str
    prices: Prices


@dataclass(frozen=True, slots=True)
class Tariffs:
    """All price lists, the oldest first; the oldest also counts for all time before it.

    Costs are in the currency of the newest list. Usage that was priced in another currency has no
    cost.
    """

    each: tuple[Tariff, ...]

    @classmethod
    def of(cls, tariffs: Iterable[Tariff]) -> "Tariffs":
        """Sort the price lists by time; there must be at least one."""
        return cls(tuple(sorted(tariffs, key=lambda tariff: tariff.since)))

    @property
    def currency(self) -> str:
        """Currency of the newest list."""
        return self.each[-1].currency

    @property
    def changes(self) -> tuple[float, ...]:
        """Times at which prices changed, in seconds since the epoch."""
        return tuple(tariff.since for tariff in self.each[1:])

    def number_at(self, moment: float) -> int:
        """Return the number of the price list that is valid at this moment."""
        return bisect_right(self.changes, moment)

    def price(self, number: int, label: str) -> float | None:
        """Return the price of one GPU for an hour by that list; None: unknown."""
        tariff = self.each[number]
        if tariff.currency != self.currency:
            return None
        return tariff.prices.of(label)


def _check(model: str, price: float) -> None:
    if not (isfinite(price) and price >= 0):
        raise InvalidPrices(f"the price of {model!r} is {price}; write a number, 0 or more")
    try:
        if model != ANY_MODEL:
            require_model(model)
    except InvalidRequest as error:
        raise InvalidPrices(f"{error}, or * for all others") from error
