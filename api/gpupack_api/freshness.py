# SPDX-License-Identifier: Apache-2.0
"""Whether watches have told all, and of late."""

import asyncio
from collections.abc import Mapping
from typing import Protocol


class Watch(Protocol):
    """What is asked of a reflector."""

    synced: asyncio.Event

    def age_seconds(self) -> float:
        """Seconds since the server last said anything."""


def missing_of(watches: Mapping[str, Watch], fresh_seconds: float) -> str:
    """What is missing to answer; empty: nothing."""
    for name, watch in watches.items():
        if not watch.synced.is_set():
            return f"{name} are not read yet"
        if watch.age_seconds() > fresh_seconds:
            return f"nothing was heard of {name} for {watch.age_seconds():.0f} s"
    return "" if watches else "nothing is watched"
