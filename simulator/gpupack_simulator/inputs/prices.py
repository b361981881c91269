# SPDX-License-Identifier: Apache-2.0
"""A price file: `currency` and `prices` of a GPU-hour, as in the chart's values.

    currency: EUR
    prices: {A100-80GB: 2.1, "*": 1}

The chart's values file, which has them below `cost`, is accepted too.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpupack_cost import Prices, Tariff, Tariffs
from gpupack_cost.errors import InvalidPrices
from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.typed import fields_of, one
from gpupack_simulator.inputs.yamlfile import Document


class PricesSpec(msgspec.Struct, frozen=True):
    """Prices of one GPU for an hour, by model."""

    prices: Mapping[str, float]
    currency: str = ""


def read_prices(path: Path) -> Tariffs:
    """Read one price list, which is valid for the whole run.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    document = Document(faults)
    top = fields_of(document.data, "", document, faults)
    at = "cost" if "cost" in top else ""
    given = one(top.get("cost", top), PricesSpec, at, document, faults)
    tariffs = None
    if given is not None:
        try:
            tariffs = Tariffs.of([Tariff(0.0, given.currency, Prices(given.prices))])
        except InvalidPrices as error:
            where = f"{at}.prices" if at else "prices"
            faults.add(document.line(where), where, str(error))
    faults.check()
    assert tariffs is not None  # noqa: S101 - there were no faults
    return tariffs
