# SPDX-License-Identifier: Apache-2.0
"""What a GPU-hour costs, by model, and from when on."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

from gpupack_core.accounting.labels import read_label
from gpupack_core.errors import InvalidPrices, InvalidRequest
from gpupack_core.models import matches_model, require_model, words

ANY_MODEL: Final = "*"
"""Every model that has no price of its own."""


class Prices:
    """One price list; immutable but for what it remembers.

    Of several names that a GPU's model matches, the one of the most words counts: `A100-80GB`
    before `A100`. A model that none matches has the price of `*`; without that nobody knows it.

    Args:
        per_gpu_hour: by model as people write it, or `*`.

    Raises:
        InvalidPrices: a name is no model; a price is negative or no number.
    """

    def __init__(self, per_gpu_hour: Mapping[str, float]) -> None:
        for model, price in per_gpu_hour.items():
            _check(model, price)
        self.per_gpu_hour = dict(per_gpu_hour)
        named = per_gpu_hour.keys() - {ANY_MODEL}
        self._names = sorted(named, key=lambda name: (-len(words(name)), name))
        self._known: dict[str, float | None] = {}

    def of(self, label: str) -> float | None:
        """Of one GPU for an hour; None: no price was set."""
        if label not in self._known:
            model, memory = read_label(label)
            found = (name for name in self._names if matches_model(name, model, memory))
            self._known[label] = self.per_gpu_hour.get(next(found, ANY_MODEL))
        return self._known[label]


@dataclass(frozen=True, slots=True)
class Tariff:
    """A price list and the moment from which it holds, in seconds since the epoch."""

    since: float
    currency: str
    prices: Prices


@dataclass(frozen=True, slots=True)
class Tariffs:
    """All price lists, the oldest first; that one counts for what was before it, too.

    Costs are in the currency of the newest. What was used while prices were in another has none.
    """

    each: tuple[Tariff, ...]

    @classmethod
    def of(cls, tariffs: Iterable[Tariff]) -> "Tariffs":
        """Of any order; there must be one."""
        return cls(tuple(sorted(tariffs, key=lambda tariff: tariff.since)))

    @property
    def currency(self) -> str:
        """Of the newest."""
        return self.each[-1].currency

    @property
    def changes(self) -> tuple[float, ...]:
        """When prices changed."""
        return tuple(tariff.since for tariff in self.each[1:])

    def number_at(self, moment: float) -> int:
        """Which of them holds then."""
        return bisect_right(self.changes, moment)

    def price(self, number: int, label: str) -> float | None:
        """Of one GPU for an hour by that list; None: nobody knows it."""
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
