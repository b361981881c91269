# SPDX-License-Identifier: Apache-2.0
"""Cache of values that expire."""

import collections
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Expiring(Protocol):
    """Value that is valid until a given time."""

    @property
    def until(self) -> float:
        """End of the validity by the monotonic clock, in seconds."""
        ...


K = TypeVar("K")
V = TypeVar("V", bound=Expiring)


class ExpiringCache(Generic[K, V]):
    """Latest value of each key; values that expired long ago are dropped as new ones are added.

    Args:
        clock: monotonic seconds.
        linger_seconds: how long an expired value stays: the next one may build on it.
        max_entries: largest number of values; the oldest are dropped first.
    """

    def __init__(
        self, clock: Callable[[], float], *, linger_seconds: float, max_entries: int = 1 << 20
    ) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._linger_seconds = linger_seconds
        self._values: collections.OrderedDict[K, V] = collections.OrderedDict()
        """Values by key, the most recently changed at the end."""

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the last value of a key, even if expired.

        None means that there is none, or that it expired long ago.
        """
        value = self._values.get(key)
        return value if value and not self._is_long_over(value) else None

    def put(self, key: K, value: V) -> None:
        """Store a value in place of the last one of its key."""
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._max_entries or self._is_long_over(
            next(iter(self._values.values()))
        ):
            self._values.popitem(last=False)

    def forget(self, key: K) -> None:
        """Remove the value of a key."""
        self._values.pop(key, None)

    def _is_long_over(self, value: V) -> bool:
        return value.until + self._linger_seconds < self._clock()
