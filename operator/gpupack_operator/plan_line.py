# SPDX-License-Identifier: Apache-2.0
"""GPUJobs that wait for a plan: whose turn it is to ask, and who has asked.

Who goes next, and where, the extender's queue decides. It knows a job once it was asked for it,
and says when the job's turn has come; until then asking again only tells whether the reason has
changed. So who has asked asks again seldom, and later each time.

One plan is made at a time. Who finds another being made stands in line, by priority and age: a
queue that begins anew hears of the first first.
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
    """What is planned first: priority, then age. It sorts as it stands."""

    minus_priority: int
    created: dt.datetime
    key: Key


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """Of a GPUJob that the queue knows.

    Attributes:
        times: how often in a row it was told to wait.
        generation: of the spec that was asked for.
        look_at: when to ask again whether the reason has changed.
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
    """Its turn has come since it last asked: perhaps while the answer to that was on its way."""


_NOTHING: Final = _Entry()


class PlanLine:
    """Those who stand in line, and what is known of those who wait.

    Args:
        wake: have a GPUJob looked at.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._entries: dict[Key, _Entry] = {}
        self._line: dict[Key, TurnOrder] = {}
        self._next: Key | None = None
        """Who was in line and is the next to ask, while he has not asked."""

    def line_up(self, order: TurnOrder) -> None:
        """Another GPUJob is being planned; when that is done, it is the next one's turn."""
        self._line[order.key] = order
        self.is_to_ask(order.key)
        if self._next == order.key:
            self._next = None

    def next_turn(self) -> None:
        """The next plan can be asked for: by the first in line."""
        first = min(self._line.values(), default=None)
        self._next = first.key if first else None
        if first:
            del self._line[first.key]
            self._wake(first.key)

    def turn_ends(self, key: Key) -> None:
        """A pass over a GPUJob is over; where it was its turn and it did not ask, the next may."""
        if self._next == key:
            self.next_turn()

    def asks(self, key: Key) -> None:
        """It asks now."""
        self._entry(key).is_called = False

    def waits(self, key: Key, *, generation: int, now: dt.datetime) -> None:
        """The queue knows it, and told it to wait."""
        entry = self._entry(key)
        times = entry.asked.times + 1 if entry.asked else 1
        seconds = min(FIRST_LOOK_SECONDS * 2.0 ** min(times - 1, 10), LONGEST_LOOK_SECONDS)
        look_at = now + dt.timedelta(seconds=seconds)
        entry.asked, entry.refusals = Asked(times, generation, look_at), 0

    def refused(self, key: Key) -> None:
        """It could not ask, or had no answer: the queue may not know it."""
        entry = self._entry(key)
        entry.refusals, entry.asked = entry.refusals + 1, None

    def is_to_ask(self, key: Key) -> None:
        """What it was answered holds no more: it asks when it is looked at."""
        if entry := self._entries.get(key):
            entry.asked = None

    def called(self, key: Key) -> None:
        """Its turn has come: it asks."""
        if entry := self._entries.get(key):
            entry.is_called = True
        self._wake(key)

    def ask_anew(self) -> None:
        """The queue knows nobody any more: all who wait ask."""
        for key in self._entries:
            self.called(key)

    def tell(self, key: Key, told: Told) -> None:
        """It was written into the status of a waiting GPUJob why it waits."""
        if entry := self._entries.get(key):
            entry.told = told

    def leave(self, key: Key) -> None:
        """A GPUJob waits no longer."""
        self._entries.pop(key, None)
        self._line.pop(key, None)

    def told(self, key: Key) -> Told | None:
        """What the status of a waiting GPUJob says; None where we did not write it."""
        return self._entries.get(key, _NOTHING).told

    def asked_until(self, key: Key, *, generation: int) -> dt.datetime | None:
        """Until when the queue knows the job as it is and has not called it; None: it is to ask."""
        entry = self._entries.get(key, _NOTHING)
        if entry.asked is None or entry.is_called or entry.asked.generation != generation:
            return None
        return entry.asked.look_at

    def refusals(self, key: Key) -> int:
        """How often in a row it could not ask, or had no answer."""
        return self._entries.get(key, _NOTHING).refusals

    def _entry(self, key: Key) -> _Entry:
        return self._entries.setdefault(key, _Entry())
