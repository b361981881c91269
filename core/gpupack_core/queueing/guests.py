# SPDX-License-Identifier: Apache-2.0
"""Who went past a job that waits because of how long jobs like them took: its guests."""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from gpupack_core.queueing.job import JobId

DELAYS_KEPT: Final = 10_000


@dataclass(slots=True)
class Guests:
    """Mutable; by the one they went past. Those who run, or were let in and may not run yet."""

    _of: dict[JobId, dict[JobId, None]] = field(default_factory=dict)
    _past: dict[JobId, set[JobId]] = field(default_factory=dict)
    owed: dict[JobId, float] = field(default_factory=dict)
    """Since when each would fit if its guests were gone."""
    delays: deque[float] = field(default_factory=lambda: deque(maxlen=DELAYS_KEPT))
    """Seconds for which each of those who would have fitted waited for its guests."""
    looked: dict[JobId, int] = field(default_factory=dict)
    """At how many givings-back it would not have."""

    def copy(self) -> "Guests":
        """The same, independent of these."""
        return Guests(
            {head: guests.copy() for head, guests in self._of.items()},
            {guest: heads.copy() for guest, heads in self._past.items()},
            self.owed.copy(),
            self.delays.copy(),
            self.looked.copy(),
        )

    def of(self, head: JobId) -> Collection[JobId]:
        """In the order in which they went past it."""
        return self._of.get(head, {}).keys()

    def __contains__(self, job: object) -> bool:
        """Whether it went past somebody who waits still."""
        return job in self._past

    def add(self, guest: JobId, heads: Iterable[JobId]) -> None:
        """It was let in past these."""
        for head in heads:
            self._of.setdefault(head, {})[guest] = None
            self._past.setdefault(guest, set()).add(head)

    def leave(self, guest: JobId) -> None:
        """It has ended, or was not let in after all."""
        for head in self._past.pop(guest, ()):
            self._of[head].pop(guest)
            if not self._of[head]:
                self.forget(head)

    def starts(self, head: JobId, now: float) -> None:
        """It waits no longer, since it runs."""
        since = self.owed.get(head)
        if since is not None:
            self.delays.append(now - since)
        self.forget(head)

    def forget(self, head: JobId) -> None:
        """It waits no longer, or nobody is left who went past it."""
        self.owed.pop(head, None)
        self.looked.pop(head, None)
        for guest in self._of.pop(head, ()):
            self._past[guest].discard(head)
            if not self._past[guest]:
                del self._past[guest]
