# SPDX-License-Identifier: Apache-2.0
"""GPUJobs whose plan was refused: who asks first when something is freed, who knows what.

    freed ─► the first few at once ─► the next few, every WAKE_SECONDS, ─► the last
                                       while plans can be asked for

An event costs the same however many wait. Whatever is freed during such a round wakes the first few
again and has another round follow this one, so that the last is asked too where events never cease.
"""

import bisect
import dataclasses
import datetime as dt
from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple

from gpupack_crds import names
from gpupack_operator.work_queue import CallLater, Timer

WAKE_SECONDS: Final = 0.1
WAKE_BATCH: Final = 8
"""Woken at a time; a job in line for the plan API counts as one of the next batch."""


class Key(NamedTuple):
    """Namespace and name of a GPUJob."""

    namespace: str
    name: str


class TurnOrder(NamedTuple):
    """What is planned first: priority, then age. It sorts as it stands.

    GPUs of another resource name are on other nodes: nobody waits behind a job that wants them.
    """

    minus_priority: int
    created: dt.datetime
    key: Key
    resource: str = names.GPU


@dataclasses.dataclass(slots=True)
class _Entry:
    rank: TurnOrder
    refusals: int = 0
    told_at: dt.datetime | None = None
    lacks_room: bool = False
    behind: Key | None = None


class Waitlist:
    """Waiting GPUJobs, and those that could not ask because another was being planned.

    Args:
        wake: have a GPUJob looked at.
        call_later: as an event loop's.
    """

    def __init__(self, wake: Callable[[Key], None], call_later: CallLater) -> None:
        self._wake = wake
        self._call_later = call_later
        self._entries: dict[Key, _Entry] = {}
        self._order: list[TurnOrder] = []
        self._short: dict[str, list[TurnOrder]] = defaultdict(list)
        """Of those that lack room, by resource name, in order."""
        self._behind: dict[Key, set[Key]] = defaultdict(set)
        self._line: dict[Key, TurnOrder] = {}
        self._turn: Key | None = None
        """Who was in line and is the next to ask, while he has not asked."""
        self._freed = False
        self._again = False
        self._last_woken: TurnOrder | None = None
        """Of the round that goes on; None: there is none."""
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def refused(self, rank: TurnOrder, *, lacks_room: bool | None) -> None:
        """A plan was refused; who lacks room (None: as before) goes before lower priorities."""
        entry = self._entry(rank)
        entry.refusals += 1
        self._stand(entry, behind=None)
        if lacks_room is not None:
            self._lack(entry, lacks_room=lacks_room)
        if not entry.lacks_room:
            self._wake_behind(rank.key)

    def stand_behind(self, rank: TurnOrder, first: Key) -> None:
        """A GPUJob does not ask while one of higher priority lacks room."""
        entry = self._entry(rank)
        self._lack(entry, lacks_room=False)
        self._stand(entry, behind=first)
        ahead = self._entries.get(first)
        if ahead is None or not ahead.lacks_room:
            self._wake(rank.key)

    def ahead_of(self, rank: TurnOrder) -> Key | None:
        """The first other GPUJob of higher priority that lacks room; equals may overtake."""
        rivals = self._short.get(rank.resource, ())
        first = next((other for other in rivals if other.key != rank.key), None)
        return first.key if first and first.minus_priority < rank.minus_priority else None

    def line_up(self, rank: TurnOrder) -> None:
        """Another GPUJob is being planned; when that is done, it is the next one's turn."""
        self._line[rank.key] = rank
        if self._turn == rank.key:
            self._turn = None

    def next_turn(self) -> None:
        """The next plan can be asked for: by the first in line."""
        first = min(self._line.values(), default=None)
        self._turn = first.key if first else None
        if first:
            del self._line[first.key]
            self._wake(first.key)

    def turn_ends(self, key: Key) -> None:
        """A pass over a GPUJob is over; where it was its turn and it did not ask, the next may."""
        if self._turn == key:
            self.next_turn()

    def told(self, key: Key, at: dt.datetime) -> None:
        """The status of a waiting GPUJob was written."""
        if entry := self._entries.get(key):
            entry.told_at = at

    def told_at(self, key: Key) -> dt.datetime | None:
        """When the status of a waiting GPUJob was last written; None where we did not."""
        entry = self._entries.get(key)
        return entry.told_at if entry else None

    def leave(self, key: Key) -> None:
        """A GPUJob waits no longer."""
        if entry := self._entries.pop(key, None):
            self._lack(entry, lacks_room=False)
            self._stand(entry, behind=None)
            _remove(self._order, entry.rank)
            self._wake_behind(key)
        self._line.pop(key, None)

    def refusals(self, key: Key) -> int:
        """Refused plans in a row since something was last freed."""
        entry = self._entries.get(key)
        return entry.refusals if entry else 0

    def freed(self) -> None:
        """Something was freed: those who wait ask again, in order, with patience renewed."""
        self._freed = True
        if self._timer is None:
            self._go_on()

    def _go_on(self) -> None:
        """Wake the next few of the round, and the first few if something was freed."""
        self._timer = None
        if self._last_woken and len(self._line) < WAKE_BATCH:
            self._wake_next()
        if self._freed:
            self._freed, self._again = False, self._last_woken is not None
            first = self._wake_some(0)
            self._last_woken = self._last_woken or first
        if self._freed or self._last_woken:
            self._timer = self._call_later(WAKE_SECONDS, self._go_on)

    def _wake_next(self) -> None:
        place = bisect.bisect_right(self._order, self._last_woken) if self._last_woken else 0
        self._last_woken = self._wake_some(place)
        if self._last_woken is None and self._again:
            self._again = False
            self._last_woken = self._wake_some(0)

    def _wake_some(self, place: int) -> TurnOrder | None:
        """Wake a batch from this place of the order on; the answer is its last."""
        batch = self._order[place : place + WAKE_BATCH]
        for rank in batch:
            self._entries[rank.key].refusals = 0
            self._wake(rank.key)
        return batch[-1] if batch else None

    def _entry(self, rank: TurnOrder) -> _Entry:
        entry = self._entries.get(rank.key)
        if entry is None:
            entry = self._entries[rank.key] = _Entry(rank=rank)
            bisect.insort(self._order, rank)
        elif entry.rank != rank:
            lacked = entry.lacks_room
            self._lack(entry, lacks_room=False)
            _remove(self._order, entry.rank)
            bisect.insort(self._order, rank)
            entry.rank = rank
            self._lack(entry, lacks_room=lacked)
        return entry

    def _lack(self, entry: _Entry, *, lacks_room: bool) -> None:
        if lacks_room and not entry.lacks_room:
            bisect.insort(self._short[entry.rank.resource], entry.rank)
        elif entry.lacks_room and not lacks_room:
            _remove(self._short[entry.rank.resource], entry.rank)
        entry.lacks_room = lacks_room

    def _stand(self, entry: _Entry, *, behind: Key | None) -> None:
        if entry.behind:
            self._behind[entry.behind].discard(entry.rank.key)
            if not self._behind[entry.behind]:
                del self._behind[entry.behind]
        if behind:
            self._behind[behind].add(entry.rank.key)
        entry.behind = behind

    def _wake_behind(self, first: Key) -> None:
        behind = [self._entries[key].rank for key in self._behind.get(first, ())]
        for rank in sorted(behind):
            self._wake(rank.key)


def _remove(ranks: list[TurnOrder], rank: TurnOrder) -> None:
    del ranks[bisect.bisect_left(ranks, rank)]
