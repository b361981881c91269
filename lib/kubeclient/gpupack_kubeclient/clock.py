# SPDX-License-Identifier: Apache-2.0
"""The time by the API server's clock.

A comparison of `now` with a timestamp that the cluster wrote (a deletion, a binding, the start of
an attempt) must not use the host's wall clock. That clock may be wrong, and it jumps when it is
corrected. Every answer of the API server carries its time; between two answers the monotonic clock
counts on.

    asked ──────────── Date, cut to whole seconds ──────────── answered
      the server's time then lies between Date and Date + 1 s, so its distance from the monotonic
      clock lies between (Date - answered) and (Date + 1 s - asked)

The distance changes only when an answer contradicts it, and then by as little as possible. Fast
answers narrow it down; a slow answer gives a wide range and changes nothing. The clock can
therefore step back, but only after the server's own clock did.
"""

import datetime as dt
import email.utils
import time
from collections.abc import Callable

DATE_SECONDS = 1.0
"""Seconds that a Date header cuts off, at most."""


class ServerClock:
    """A clock that follows the API server's clock.

    Args:
        monotonic: returns monotonic seconds.
        wall: the host's wall clock; read once, and used as long as no answer contradicts it.
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
        """Return the API server's time, to about a second."""
        return dt.datetime.fromtimestamp(self._monotonic() + self._distance, dt.UTC)

    def reading(self) -> float:
        """Return the monotonic clock, for `asked` of a later `observe`."""
        return self._monotonic()

    def observe(self, date: str, *, asked: float) -> None:
        """Take the time from an answer that arrived just now.

        Args:
            date: Date header of the answer; an unreadable one is ignored.
            asked: the monotonic clock when the request was sent.
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
    """Return a function for seconds since the epoch: `clock` at the first call, then `monotonic`.

    Waiting times and run times must not jump with the clock of another host.
    """
    distance: float | None = None

    def now() -> float:
        nonlocal distance
        if distance is None:
            distance = clock.now().timestamp() - monotonic()
        return monotonic() + distance

    return now
