# SPDX-License-Identifier: Apache-2.0
"""Learns the mix from arrivals, and the churn from departures.

Old arrivals fade: all counts are halved each time that HORIZON arrivals have come, so a kind that
came no more is forgotten. The commonest KINDS are kept then, and whenever there are MAX_KINDS.
What is learned depends on the order of calls alone, never on a clock: the same trace teaches the
same thing.
"""

from gpupack_core.outlook import Mix, Outlook, kind_of
from gpupack_core.request import Request

FIRST = 25
"""Arrivals before the first outlook; from then on one each time that they have doubled.

Few, since until then nothing is known of models and memory that are asked for: a cluster of 400
GPUs is half full after 200."""
REGULAR = 1600
"""Arrivals between outlooks once the doubling has come so far."""
HORIZON = 16_384
KINDS = 512
MAX_KINDS = 2 * KINDS
"""Whoever may create pods can invent kinds without end."""


class Learner:
    """Counts requests by kind; bounded, not thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[Request, float] = {}
        self._arrivals = self._departures = 0.0
        self._seen = 0
        self._due_at = FIRST

    def arrived(self, request: Request) -> None:
        """A request came, whether or not it was placed."""
        kind = kind_of(request)
        self._counts[kind] = self._counts.get(kind, 0.0) + 1
        self._arrivals += 1
        self._seen += 1
        if self._seen % HORIZON == 0:
            self._fade()
        elif len(self._counts) > MAX_KINDS:
            self._counts = dict(self._commonest())

    def departed(self, request: Request) -> None:
        """What was placed is gone."""
        del request
        self._departures += 1

    def due(self) -> bool:
        """Whether enough has come since the last outlook to take a new one."""
        return self._seen >= self._due_at

    @property
    def due_in(self) -> int:
        """After so many more arrivals; 0 or less: it is due."""
        return self._due_at - self._seen

    def outlook(self) -> Outlook:
        """What is likely to come, by what came."""
        self._due_at = self._seen + min(max(self._seen, FIRST), REGULAR)
        return self.peek()

    def peek(self) -> Outlook:
        """As `outlook`, for onlookers: the next one is due when it would have been."""
        churn = self._departures / self._arrivals if self._arrivals else 0.0
        return Outlook(Mix.of(self._counts.items()), churn)

    def _fade(self) -> None:
        self._arrivals /= 2
        self._departures /= 2
        self._counts = {kind: count / 2 for kind, count in self._commonest()}

    def _commonest(self) -> list[tuple[Request, float]]:
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1], repr(item[0])))
        return ordered[:KINDS]
