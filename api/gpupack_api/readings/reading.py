# SPDX-License-Identifier: Apache-2.0
"""What is read of one GPU."""

from collections.abc import Mapping
from typing import Final

import msgspec


class Reading(msgspec.Struct, frozen=True):
    """In whole numbers: what changes by less is no news. None: it is not known."""

    temperature_celsius: float | None = None
    power_watts: float | None = None
    busy_percent: float | None = None


NOT_READ: Final = Reading()
NOTHING: Final[Mapping[str, Reading]] = {}
