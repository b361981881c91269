# SPDX-License-Identifier: Apache-2.0
"""GPUJobs that wait for a plan: which may request one next, and which have requested one.

The extender's queue decides which job is next, and where. It knows a job after the first request
for its plan, and notifies the operator when it can be admitted; until then a further request only
shows whether the reason has changed. So a job repeats its request seldom, and later each time.

One plan is made at a time. A job that finds another one being planned waits in line, by priority
and age: so a restarted queue receives the first jobs first.
"""

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Final, NamedTuple

from gpupack_operator.decision.model import Told

FIRST_LOOK_SECONDS: Final = 15.0
LONGEST_LOOK_SECONDS: Final = 600.0


class Key(NamedTuple):
    """Namespace and name of a GPUJob."""

    namespace: str
    name: str


class TurnOrder(NamedTuple):
    """Sort key of the line: priority, then age."""

    minus_priority: int
    created: dt.datetime
    key: Key


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """Record of a GPUJob that the queue knows.

    Attributes:
        times: how many consecutive answers said that it must wait.
        generation: generation of the requested spec.
        look_at: when to request again, to see whether the reason has changed.
    """

    times: int
    generation: int
    look_at: dt.datetime


@dataclasses.dataclass(slots=True)
class _Entry:
    refusals: int = 0
    told: Told | None = None
    asked: Asked | None = None
    is_called: bool = False
    """It may be admitted since its last request, perhaps while the answer to that was under way."""


_NOTHING: Final = _Entry()


class PlanLine:
    """GPUJobs in line, and what is known of those that wait.

    Args:
        wake: queues a GPUJob for a pass.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._entries: dict[Key, _Entry] = {}
        self._line: dict[Key, TurnOrder] = {}
        self._next: Key | None = None
        """The next GPUJob from the line, until it sends its request."""

    def line_up(self, order: TurnOrder) -> None:
        """Line up a GPUJob while another is being planned; the line continues after that."""
        self._line[order.key] = order
        self.is_to_ask(order.key)
        if self._next == order.key:
            self._next = None

    def next_turn(self) -> None:
        """Let the first GPUJob in line request its plan."""
        first = min(self._line.values(), default=None)
        self._next = first.key if first else None
        if first:
            del self._line[first.key]
            self._wake(first.key)

    def turn_ends(self, key: Key) -> None:
        """End a pass over a GPUJob; if it was next and sent no request, the next one may."""
        if self._next == key:
            self.next_turn()

    def asks(self, key: Key) -> None:
        """Record that a GPUJob requests a plan now."""
        self._entry(key).is_called = False

    def waits(self, key: Key, *, generation: int, now: dt.datetime) -> None:
        """Record that the queue knows the GPUJob and answered that it waits."""
        entry = self._entry(key)
        times = entry.asked.times + 1 if entry.asked else 1
        seconds = min(FIRST_LOOK_SECONDS * 2.0 ** min(times - 1, 10), LONGEST_LOOK_SECONDS)
        look_at = now + dt.timedelta(seconds=seconds)
        entry.asked, entry.refusals = Asked(times, generation, look_at), 0

    def refused(self, key: Key) -> None:
        """Record that a request failed or had no answer: the queue may not know the GPUJob."""
        entry = self._entry(key)
        entry.refusals, entry.asked = entry.refusals + 1, None

    def is_to_ask(self, key: Key) -> None:
        """Forget an outdated answer: the GPUJob requests a plan at its next pass."""
        if entry := self._entries.get(key):
            entry.asked = None

    def called(self, key: Key) -> None:
        """Wake a GPUJob that the queue can admit: it requests its plan."""
        if entry := self._entries.get(key):
            entry.is_called = True
        self._wake(key)

    def ask_anew(self) -> None:
        """Let all waiting GPUJobs request plans, because the queue has lost them."""
        for key in self._entries:
            self.called(key)

    def tell(self, key: Key, told: Told) -> None:
        """Record why a GPUJob waits, as written into its status."""
        if entry := self._entries.get(key):
            entry.told = told

    def leave(self, key: Key) -> None:
        """Remove a GPUJob that no longer waits."""
        self._entries.pop(key, None)
        self._line.pop(key, None)

    def told(self, key: Key) -> Told | None:
        """Return what a waiting GPUJob's status says; None: this operator did not write it."""
        return self._entries.get(key, _NOTHING).told

    def asked_until(self, key: Key, *, generation: int) -> dt.datetime | None:
        """Return until when the queue's answer holds for the job as it is.

        None means that it must request.
        """
        entry = self._entries.get(key, _NOTHING)
        if entry.asked is None or entry.is_called or entry.asked.generation != generation:
            return None
        return entry.asked.look_at

    def refusals(self, key: Key) -> int:
        """Return the number of consecutive requests that failed or had no answer."""
        return self._entries.get(key, _NOTHING).refusals

    def _entry(self, key: Key) -> _Entry:
        return self._entries.setdefault(key, _Entry())
