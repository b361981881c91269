# SPDX-License-Identifier: Apache-2.0
"""A queue of keys: each at most once, each in one worker's hands at a time, some only later.

    add ─► waiting ─► get ─► in work ─► done
             ▲                  │ added meanwhile: once more
             └──── add_at ◄─────┘ look again at some time

The pattern is client-go's work queue. asyncio.Queue knows neither duplicates nor keys in work;
one task for each key would reconcile without a bound on how many do so at once.
"""

import asyncio
import collections
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K")


class Timer(Protocol):
    """What `call_later` gives back."""

    def cancel(self) -> None:
        """Do not call."""


CallLater = Callable[[float, Callable[[], None]], Timer]


class WorkQueue(Generic[K]):
    """Keys that wait to be worked on, first come first served."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._waiting: collections.OrderedDict[K, float] = collections.OrderedDict()
        """With the moment since when."""
        self._in_work: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, Timer] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        """How many wait now."""
        return len(self._waiting)

    def oldest_seconds(self) -> float:
        """For how long the next one has waited; 0 where nobody does."""
        since = next(iter(self._waiting.values()), None)
        return 0.0 if since is None else time.monotonic() - since

    def add(self, key: K) -> None:
        """Have a key worked on; if it is in work, once more afterwards."""
        if key in self._in_work:
            self._again.add(key)
            return
        self._waiting.setdefault(key, time.monotonic())
        self._filled.set()

    def add_later(self, key: K, seconds: float) -> None:
        """Have a key worked on after a while; the newest call counts."""
        self.forget_later(key)
        self._timers[key] = self._call_later(max(seconds, 0.0), lambda: self._due(key))

    def forget_later(self, key: K) -> None:
        """Take back `add_later`."""
        if timer := self._timers.pop(key, None):
            timer.cancel()

    async def get(self) -> K:
        """Wait for a key and take it in work; `done` must follow."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        key, _ = self._waiting.popitem(last=False)
        self._in_work.add(key)
        self.forget_later(key)
        return key

    def done(self, key: K) -> None:
        """A key is no longer in work."""
        self._in_work.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)
