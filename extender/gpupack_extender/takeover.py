# SPDX-License-Identifier: Apache-2.0
"""What a new leader looks at before it decides.

A watch may be a minute and a half behind before it counts as stale. That harms nobody while one
process decides, since it knows its own writes; but a successor would give away what its
predecessor gave a minute ago. So whatever decisions rest on is listed once more, when the last plan
that the predecessor can have answered is over: a list of before may lack its write.

To wait until each watch has reached the present resourceVersion was rejected: the watch of a
quiet kind gets there only with its next bookmark, up to a minute later.
"""

import math
from collections.abc import Callable, Iterable
from typing import Protocol


class Listed(Protocol):
    """What a takeover asks of a reflector."""

    listed_at: float

    def list_anew(self) -> None:
        """List again soon."""


class Timer(Protocol):
    """What a takeover asks of a call that is due later."""

    def cancel(self) -> None:
        """Do not call."""


Later = Callable[[float, Callable[[], None]], Timer]
"""Calls after so many seconds, as an event loop's call_later does."""


class Takeover:
    """The lists that a new leader waits for.

    Args:
        sources: what is listed.
        clock: the reflectors' own, seconds.
        settle_seconds: for how long a plan of the predecessor's may be on its way.
        later: calls when these are over.
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
        """Have everything listed once the settling time is over."""
        if self._timer:
            self._timer.cancel()
        self._begun_at = math.inf
        self._timer = self._later(self._settle_seconds, self._list)

    def _list(self) -> None:
        self._begun_at = self._clock()
        for source in self._sources:
            source.list_anew()

    @property
    def is_complete(self) -> bool:
        """Whether everything has been listed since the settling time was over."""
        return all(source.listed_at >= self._begun_at for source in self._sources)
