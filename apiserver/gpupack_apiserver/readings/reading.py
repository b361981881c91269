# SPDX-License-Identifier: Apache-2.0
"""The reading of one GPU."""

from collections.abc import Mapping
from typing import Final

import msgspec


class Reading(msgspec.Struct, frozen=True):
    """A reading in whole numbers, so that smaller changes do not count. None: unknown."""

    temperature_celsius: float | None = None
    power_watts: float | None = None
    busy_percent: float | None = None


NOT_READ: Final = Reading()
NOTHING: Final[Mapping[str, Reading]] = {}
