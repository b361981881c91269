# SPDX-License-Identifier: Apache-2.0
"""GPUJobs whose plan was refused: who asks first when something is freed, who knows what."""

import dataclasses
import datetime as dt
from typing import NamedTuple


class Key(NamedTuple):
    """Namespace and name of a GPUJob."""

    namespace: str
    name: str


@dataclasses.dataclass(slots=True)
class _Entry:
    rank: tuple[int, dt.datetime, Key]
    refusals: int = 0
    told_at: dt.datetime | None = None


class Waitlist:
    """Waiting GPUJobs in the order in which they are planned: priority, then age."""

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}

    def refused(self, key: Key, *, priority: int, created: dt.datetime) -> None:
        """A plan was refused."""
        entry = self._entries.setdefault(key, _Entry(rank=(0, created, key)))
        entry.rank = (-priority, created, key)
        entry.refusals += 1

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
        self._entries.pop(key, None)

    def refusals(self, key: Key) -> int:
        """Refused plans in a row since something was last freed."""
        entry = self._entries.get(key)
        return entry.refusals if entry else 0

    def freed(self) -> tuple[Key, ...]:
        """Something was freed: everybody who waits, in order, with patience renewed."""
        for entry in self._entries.values():
            entry.refusals = 0
        return tuple(sorted(self._entries, key=lambda key: self._entries[key].rank))
