# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities in gpupack's units; the official client parses them."""

import decimal

from kubernetes.utils.quantity import parse_quantity

from gpupack_crds.devices import BYTES_PER_MIB
from gpupack_crds.errors import QuantityInvalid
from gpupack_devices.units import MiB, MilliCpu

_MILLI = 1000
_MOST = 2**63
"""Maximum: Kubernetes stores quantities in 64 bits."""


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


def amount(quantity: str | float) -> decimal.Decimal:
    """Return a quantity of any resource, for comparisons.

    Raises:
        QuantityInvalid: the text is not a quantity, or is negative.
    """
    try:
        parsed = decimal.Decimal(parse_quantity(quantity))
    except (ValueError, ArithmeticError) as error:
        raise QuantityInvalid(f"{quantity!r} is not a quantity such as 500m or 30Gi") from error
    if not parsed.is_finite() or not 0 <= parsed <= _MOST:
        raise QuantityInvalid(f"{quantity!r} is not a quantity between zero and 2^63")
    return parsed


def _ceiling(value: decimal.Decimal) -> int:
    return int(value.to_integral_value(rounding=decimal.ROUND_CEILING))
