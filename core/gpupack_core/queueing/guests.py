# SPDX-License-Identifier: Apache-2.0
"""Jobs that were speculatively backfilled before a queue head: the head's guests."""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from gpupack_core.queueing.job import JobId

DELAYS_KEPT: Final = 10_000


@dataclass(slots=True)
class Guests:
    """Guests by queue head: jobs that run, or were admitted and may not run yet; mutable."""

    _of: dict[JobId, dict[JobId, None]] = field(default_factory=dict)
    _past: dict[JobId, set[JobId]] = field(default_factory=dict)
    owed: dict[JobId, float] = field(default_factory=dict)
    """The time since which each head would fit if its guests were gone."""
    delays: deque[float] = field(default_factory=lambda: deque(maxlen=DELAYS_KEPT))
    """The seconds that each of these heads waited from then until its start."""
    looked: dict[JobId, int] = field(default_factory=dict)
    """The number of releases at which a head last did not fit without its guests."""

    def copy(self) -> "Guests":
        """Return an independent copy."""
        return Guests(
            {head: guests.copy() for head, guests in self._of.items()},
            {guest: heads.copy() for guest, heads in self._past.items()},
            self.owed.copy(),
            self.delays.copy(),
            self.looked.copy(),
        )

    def of(self, head: JobId) -> Collection[JobId]:
        """Return the guests of the head, in the order of their admission."""
        return self._of.get(head, {}).keys()

    def __contains__(self, job: object) -> bool:
        """Tell whether the job is a guest of a head that still waits."""
        return job in self._past

    def add(self, guest: JobId, heads: Iterable[JobId]) -> None:
        """Record that a job was admitted before these heads."""
        for head in heads:
            self._of.setdefault(head, {})[guest] = None
            self._past.setdefault(guest, set()).add(head)

    def leave(self, guest: JobId) -> None:
        """Remove a guest that has ended, or was not admitted after all."""
        for head in self._past.pop(guest, ()):
            self._of[head].pop(guest)
            if not self._of[head]:
                self.forget(head)

    def starts(self, head: JobId, now: float) -> None:
        """Record that a head runs, and how long it waited for its guests."""
        since = self.owed.get(head)
        if since is not None:
            self.delays.append(now - since)
        self.forget(head)

    def forget(self, head: JobId) -> None:
        """Forget a head that no longer waits or has no guests left."""
        self.owed.pop(head, None)
        self.looked.pop(head, None)
        for guest in self._of.pop(head, ()):
            self._past[guest].discard(head)
            if not self._past[guest]:
                del self._past[guest]
