# SPDX-License-Identifier: Apache-2.0
"""The error of a price list."""

from gpupack_devices.errors import Invalid


class InvalidPrices(Invalid):
    """A name that is no model, or a price that is negative or not finite."""
