# SPDX-License-Identifier: Apache-2.0
"""What was found out about something, for as long as it is good for anything."""

import collections
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Until(Protocol):
    """Something that is good until a moment."""

    @property
    def until(self) -> float:
        """By the monotonic clock, in seconds."""
        ...


K = TypeVar("K")
V = TypeVar("V", bound=Until)


class Remembered(Generic[K, V]):
    """The last of each key; those that are long over go as others come.

    Args:
        clock: monotonic seconds.
        linger_seconds: how long one stays when it is over: what follows it may build on it.
        most: how many are kept; the oldest go first.
    """

    def __init__(
        self, clock: Callable[[], float], *, linger_seconds: float, most: int = 1 << 20
    ) -> None:
        self._clock = clock
        self._most = most
        self._linger_seconds = linger_seconds
        self._values: collections.OrderedDict[K, V] = collections.OrderedDict()
        """Those that changed last at the end."""

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The last of this key, perhaps over; None: there is none, or it is long over."""
        value = self._values.get(key)
        return value if value and not self._is_long_over(value) else None

    def keep(self, key: K, value: V) -> None:
        """It takes the place of the last one."""
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._most or self._is_long_over(
            next(iter(self._values.values()))
        ):
            self._values.popitem(last=False)

    def forget(self, key: K) -> None:
        """Nothing is known of this key."""
        self._values.pop(key, None)

    def _is_long_over(self, value: V) -> bool:
        return value.until + self._linger_seconds < self._clock()
