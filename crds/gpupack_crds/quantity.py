# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities in gpupack's units.

The official client's parser was rejected: it is forty lines of a package whose import takes half a
second, which is a third of the start of the extender.
"""

import decimal
import functools
import re
from typing import Final

from gpupack_crds.devices import BYTES_PER_MIB
from gpupack_crds.errors import QuantityInvalid
from gpupack_devices.units import MiB, MilliCpu

_MILLI = 1000
_MOST = 2**63
"""Maximum: Kubernetes stores quantities in 64 bits."""

_FACTORS: Final = {
    "": decimal.Decimal(1),
    **{unit: decimal.Decimal(1000) ** power for power, unit in enumerate("num", start=-3)},
    **{unit: decimal.Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": decimal.Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}
"""Factors by suffix, as k8s.io/apimachinery/pkg/api/resource reads them."""

_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<suffix>[A-Za-z]*)"
)


def mebibytes(quantity: str | float) -> MiB:
    """Return memory in MiB, rounded up, so that a request is never counted too small.

    Raises:
        QuantityInvalid: the text is not a quantity, or is negative.
    """
    return MiB(_ceiling(amount(quantity) / BYTES_PER_MIB))


def milli_cpu(quantity: str | float) -> MilliCpu:
    """Return CPU in thousandths of a core, rounded up.

    Raises:
        QuantityInvalid: the text is not a quantity, or is negative.
    """
    return MilliCpu(_ceiling(amount(quantity) * _MILLI))


def count(quantity: str | float) -> int:
    """Return a number of devices.

    Raises:
        QuantityInvalid: the text is not a quantity, is negative, or is not a whole number.
    """
    parsed = amount(quantity)
    if parsed != parsed.to_integral_value():
        raise QuantityInvalid(f"{quantity!r} is not a whole number of devices")
    return int(parsed)


def whole(quantity: str | float) -> int:
    """Return an amount that is counted in whole pieces or bytes, rounded up.

    Raises:
        QuantityInvalid: the text is not a quantity, or is negative.
    """
    return _ceiling(amount(quantity))


@functools.lru_cache(maxsize=1024)
def amount(quantity: str | float) -> decimal.Decimal:
    """Return a quantity of any resource, for comparisons.

    Raises:
        QuantityInvalid: the text is not a quantity, or is negative.
    """
    try:
        parsed = _parsed(quantity)
    except (ValueError, ArithmeticError) as error:
        raise QuantityInvalid(f"{quantity!r} is not a quantity such as 500m or 30Gi") from error
    if not parsed.is_finite() or not 0 <= parsed <= _MOST:
        raise QuantityInvalid(f"{quantity!r} is not a quantity between zero and 2^63")
    return parsed


def _parsed(quantity: str | float) -> decimal.Decimal:
    """Return a number, or the value of a text.

    Raises:
        ValueError: the text is not a quantity.
        ArithmeticError: its value is too large.
    """
    if not isinstance(quantity, str):
        return decimal.Decimal(quantity)
    found = _QUANTITY.fullmatch(quantity)
    factor = _FACTORS.get(found["suffix"]) if found else None
    if found is None or factor is None:
        raise ValueError(quantity)
    return decimal.Decimal(found["number"]) * factor


def _ceiling(value: decimal.Decimal) -> int:
    return int(value.to_integral_value(rounding=decimal.ROUND_CEILING))
