# SPDX-License-Identifier: Apache-2.0
"""Queue of keys: each at most once, each with one worker at a time, some only later.

    add ─► waiting ─► get ─► in work ─► done
             ▲                  │ added during work: once more
             └──── add_at ◄─────┘ look again at some time

The pattern is client-go's work queue. asyncio.Queue knows neither duplicates nor keys in work; one
task for each key would reconcile an unlimited number of keys concurrently.
"""

import asyncio
import collections
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K")


class Timer(Protocol):
    """Timer that `call_later` returns."""

    def cancel(self) -> None:
        """Cancel the call."""


CallLater = Callable[[float, Callable[[], None]], Timer]


class WorkQueue(Generic[K]):
    """Keys that wait for a worker, first come first served."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._waiting: collections.OrderedDict[K, float] = collections.OrderedDict()
        """Waiting keys with the time since which each waits."""
        self._in_work: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, Timer] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of waiting keys."""
        return len(self._waiting)

    def oldest_seconds(self) -> float:
        """Return how long the next key has waited; 0: no key waits."""
        since = next(iter(self._waiting.values()), None)
        return 0.0 if since is None else time.monotonic() - since

    def add(self, key: K) -> None:
        """Queue a key; if it is in work, queue it once more afterwards."""
        if key in self._in_work:
            self._again.add(key)
            return
        self._waiting.setdefault(key, time.monotonic())
        self._filled.set()

    def add_later(self, key: K, seconds: float) -> None:
        """Queue a key after a while; the newest call counts."""
        self.forget_later(key)
        self._timers[key] = self._call_later(max(seconds, 0.0), lambda: self._due(key))

    def forget_later(self, key: K) -> None:
        """Cancel `add_later`."""
        if timer := self._timers.pop(key, None):
            timer.cancel()

    async def get(self) -> K:
        """Wait for a key and take it into work; `done` must follow."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        key, _ = self._waiting.popitem(last=False)
        self._in_work.add(key)
        self.forget_later(key)
        return key

    def done(self, key: K) -> None:
        """Mark a key as no longer in work."""
        self._in_work.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)
