# SPDX-License-Identifier: Apache-2.0
"""Lists that a new leader waits for before it decides.

    leads ─┬─ a predecessor's pod is still known        ─► settling time ─► list all ─► decides
           └─ none is (leader_endpoint.py) ─► list all ─┬─ no plan can be under way  ─► decides
                                                        └─ a job has no places yet   ─► as above

A watch may be a minute and a half behind before it counts as stale. That does no harm while one
process decides, since it knows its own writes; but a successor would give away what its predecessor
gave a minute ago. So all objects on which decisions depend are listed once more, when the last plan
that the predecessor can have answered has expired: an earlier list may lack its write.

Nothing has to expire if there is no predecessor. Its own writes ended with its pod. A plan that it
answered is written by the operator, into a GPUJob that existed then: if each GPUJob of a list from
after its end has ended, or has all places that it can get, nothing is under way.

The alternative of waiting until each watch has reached the current resourceVersion was rejected:
the watch of a kind with few changes reaches it only with its next bookmark, up to a minute later.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import Protocol

log = logging.getLogger(__name__)


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
        awaits_plans: tells whether a GPUJob of the last list may get places by a plan.
        clock: the reflectors' own clock, in seconds.
        settle_seconds: for how long a plan of the predecessor may be under way.
        later: calls a function after that time.
    """

    def __init__(
        self,
        sources: Iterable[Listed],
        *,
        awaits_plans: Callable[[], bool],
        clock: Callable[[], float],
        settle_seconds: float,
        later: Later,
    ) -> None:
        self._sources = tuple(sources)
        self._awaits_plans = awaits_plans
        self._clock = clock
        self._settle_seconds = settle_seconds
        self._later = later
        self._timer: Timer | None = None
        self._list_after = -math.inf
        self._is_settled = False
        self._has_predecessor = True
        self.terms = 0
        """Number of times that this process began to lead."""
        self.begun = asyncio.Event()
        """Set when this process begins to lead; its reader clears it."""

    def begin(self) -> None:
        """Request all lists once the settling time is over."""
        if self._timer:
            self._timer.cancel()
        self.terms += 1
        self._list_after, self._is_settled, self._has_predecessor = math.inf, False, True
        self._timer = self._later(self._settle_seconds, self._settle)
        self.begun.set()

    def has_no_predecessor(self, term: int) -> None:
        """Request all lists now: in this term no earlier leader's pod exists any more."""
        if term == self.terms and not self._is_settled:
            log.info("no earlier leader's pod exists: listing all objects")
            self._has_predecessor = False
            self._list()

    def _settle(self) -> None:
        if not self.is_settled:
            log.info("plans of an earlier leader have expired: listing all objects")
            self._is_settled = True
            self._list()

    def _list(self) -> None:
        self._list_after = self._clock()
        for source in self._sources:
            source.relist()

    @property
    def is_settled(self) -> bool:
        """Whether no write of a predecessor can be under way."""
        if not (self._is_settled or self._has_predecessor):
            self._is_settled = self.is_complete and not self._awaits_plans()
            if self._is_settled:
                log.info("no plan of an earlier leader can be under way")
        return self._is_settled

    @property
    def is_complete(self) -> bool:
        """Whether all sources have been listed since the last lists were requested."""
        return all(source.listed_at >= self._list_after for source in self._sources)
