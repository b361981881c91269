# SPDX-License-Identifier: Apache-2.0
"""Whether watches have synced, and are recent."""

import asyncio
from collections.abc import Mapping
from typing import Protocol


class Watch(Protocol):
    """The part of a reflector that is needed here."""

    synced: asyncio.Event

    def age_seconds(self) -> float:
        """Return the seconds since the server last sent data."""


def missing_of(watches: Mapping[str, Watch], stale_after_seconds: float) -> str:
    """Return what is missing for an answer; empty: nothing."""
    for name, watch in watches.items():
        if not watch.synced.is_set():
            return f"{name} are not read yet"
        if watch.age_seconds() > stale_after_seconds:
            return f"no data of {name} for {watch.age_seconds():.0f} s"
    return "" if watches else "nothing is watched"
