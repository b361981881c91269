# SPDX-License-Identifier: Apache-2.0
"""GPUJobs whose plan was refused: who asks first when something is freed, who knows what."""

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import NamedTuple

from gpupack_crds import names


class Key(NamedTuple):
    """Namespace and name of a GPUJob."""

    namespace: str
    name: str


class Rank(NamedTuple):
    """What is planned first: priority, then age. It sorts as it stands.

    GPUs of another resource name are on other nodes: nobody waits behind a job that wants them.
    """

    minus_priority: int
    created: dt.datetime
    key: Key
    resource: str = names.GPU


@dataclasses.dataclass(slots=True)
class _Entry:
    rank: Rank
    refusals: int = 0
    told_at: dt.datetime | None = None
    lacks_room: bool = False
    behind: Key | None = None


class Waitlist:
    """Waiting GPUJobs, and those that could not ask because another was being planned.

    Args:
        wake: have a GPUJob looked at.
    """

    def __init__(self, wake: Callable[[Key], None] = lambda _: None) -> None:
        self._wake = wake
        self._entries: dict[Key, _Entry] = {}
        self._line: dict[Key, Rank] = {}

    def refused(self, rank: Rank, *, lacks_room: bool | None) -> None:
        """A plan was refused; who lacks room (None: as before) goes before lower priorities."""
        entry = self._entry(rank)
        entry.refusals += 1
        entry.behind = None
        if lacks_room is not None:
            entry.lacks_room = lacks_room
        if not entry.lacks_room:
            self._wake_behind(rank.key)

    def stand_behind(self, rank: Rank, first: Key) -> None:
        """A GPUJob does not ask while one of higher priority lacks room."""
        entry = self._entry(rank)
        entry.lacks_room, entry.behind = False, first
        ahead = self._entries.get(first)
        if ahead is None or not ahead.lacks_room:
            self._wake(rank.key)

    def ahead_of(self, rank: Rank) -> Key | None:
        """The first other GPUJob of higher priority that lacks room; equals may overtake."""
        short = (entry.rank for entry in self._entries.values() if entry.lacks_room)
        rivals = (other for other in short if other.resource == rank.resource)
        first = min((other for other in rivals if other.key != rank.key), default=None)
        return first.key if first and first.minus_priority < rank.minus_priority else None

    def line_up(self, rank: Rank) -> None:
        """Another GPUJob is being planned."""
        self._line[rank.key] = rank

    def next_turn(self) -> None:
        """The next plan can be asked for: by the first in line."""
        if self._line:
            first = min(self._line.values()).key
            del self._line[first]
            self._wake(first)

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
        if self._entries.pop(key, None):
            self._wake_behind(key)
        self._line.pop(key, None)

    def refusals(self, key: Key) -> int:
        """Refused plans in a row since something was last freed."""
        entry = self._entries.get(key)
        return entry.refusals if entry else 0

    def freed(self) -> tuple[Key, ...]:
        """Something was freed: everybody who waits, in order, with patience renewed."""
        for entry in self._entries.values():
            entry.refusals = 0
        return tuple(sorted(self._entries, key=lambda key: self._entries[key].rank))

    def _entry(self, rank: Rank) -> _Entry:
        entry = self._entries.setdefault(rank.key, _Entry(rank=rank))
        entry.rank = rank
        return entry

    def _wake_behind(self, first: Key) -> None:
        behind = [entry.rank for entry in self._entries.values() if entry.behind == first]
        for rank in sorted(behind):
            self._wake(rank.key)
