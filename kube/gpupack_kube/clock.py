# SPDX-License-Identifier: Apache-2.0
"""What time it is by the API server's clock.

Whoever compares `now` with a moment that the cluster wrote down (a deletion, a binding, the start
of an attempt) must not take it from a wall clock of its own: that one may be wrong, and jumps when
it is set right. Every answer of the API server carries its time; between two answers the monotonic
clock counts on.

    asked ──────────── Date, cut to whole seconds ──────────── answered
      the server's time then lies between Date and Date + 1 s, so its distance from the monotonic
      clock lies between (Date - answered) and (Date + 1 s - asked)

The distance is moved only when an answer contradicts it, and then no further than it must: fast
answers narrow it down, an answer that was long on its way says little and moves nothing. The
clock can therefore step back, but only after the server's own did.
"""

import datetime as dt
import email.utils
import time
from collections.abc import Callable

DATE_SECONDS = 1.0
"""What a Date header cuts off, at most."""


class ServerClock:
    """Follows the API server's clock.

    Args:
        monotonic: seconds.
        wall: our own clock, looked at once and believed as far as no answer contradicts it.
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._distance = wall() - monotonic()

    def now(self) -> dt.datetime:
        """The API server's time, to about a second."""
        return dt.datetime.fromtimestamp(self._monotonic() + self._distance, dt.UTC)

    def reading(self) -> float:
        """The monotonic clock, to say later when a question was sent."""
        return self._monotonic()

    def observe(self, date: str, *, asked: float) -> None:
        """An answer came just now.

        Args:
            date: its Date header; one that cannot be read says nothing.
            asked: what the monotonic clock read when the question was sent.
        """
        try:
            server = email.utils.parsedate_to_datetime(date).timestamp()
        except ValueError:
            return
        least, most = server - self._monotonic(), server + DATE_SECONDS - asked
        self._distance = min(max(self._distance, least), most)


def steady(
    clock: ServerClock, monotonic: Callable[[], float] = time.monotonic
) -> Callable[[], float]:
    """Seconds since the epoch by that clock at the first call, counted on by our own.

    How long somebody has waited or run must not jump with the clock of another host.
    """
    distance: float | None = None

    def now() -> float:
        nonlocal distance
        if distance is None:
            distance = clock.now().timestamp() - monotonic()
        return monotonic() + distance

    return now
