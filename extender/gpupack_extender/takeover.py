# SPDX-License-Identifier: Apache-2.0
"""Lists that a new leader waits for before it decides.

A watch may be a minute and a half behind before it counts as stale. That does no harm while one
process decides, since it knows its own writes; but a successor would give away what its predecessor
gave a minute ago. So all objects on which decisions depend are listed once more, when the last plan
that the predecessor can have answered has expired: an earlier list may lack its write.

The alternative of waiting until each watch has reached the current resourceVersion was rejected:
the watch of a kind with few changes reaches it only with its next bookmark, up to a minute later.
"""

import math
from collections.abc import Callable, Iterable
from typing import Protocol


class Listed(Protocol):
    """Interface of a reflector that a takeover needs."""

    listed_at: float

    def relist(self) -> None:
        """List again soon."""


class Timer(Protocol):
    """Interface of a delayed call that a takeover needs."""

    def cancel(self) -> None:
        """Cancel the call."""


Later = Callable[[float, Callable[[], None]], Timer]
"""Function that calls another after so many seconds, as an event loop's call_later."""


class Takeover:
    """Lists that a new leader waits for.

    Args:
        sources: the reflectors to list.
        clock: the reflectors' own clock, in seconds.
        settle_seconds: for how long a plan of the predecessor may be under way.
        later: calls a function after that time.
    """

    def __init__(
        self,
        sources: Iterable[Listed],
        *,
        clock: Callable[[], float],
        settle_seconds: float,
        later: Later,
    ) -> None:
        self._sources = tuple(sources)
        self._clock = clock
        self._settle_seconds = settle_seconds
        self._later = later
        self._timer: Timer | None = None
        self._begun_at = -math.inf

    def begin(self) -> None:
        """Request all lists once the settling time is over."""
        if self._timer:
            self._timer.cancel()
        self._begun_at = math.inf
        self._timer = self._later(self._settle_seconds, self._list)

    def _list(self) -> None:
        self._begun_at = self._clock()
        for source in self._sources:
            source.relist()

    @property
    def is_complete(self) -> bool:
        """Whether all sources have been listed since the settling time was over."""
        return all(source.listed_at >= self._begun_at for source in self._sources)
