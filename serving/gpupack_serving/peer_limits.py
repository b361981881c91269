# SPDX-License-Identifier: Apache-2.0
"""What one address may cost: open connections, and questions to the API server.

Pods can reach the plan API, so whoever may create one can open connections and send tokens. An
address with too many connections, or one too many in all, loses the one that has been idle for the
longest: an idle connection costs its owner a reconnect, and a refused one a call.
"""

import collections
from collections.abc import Callable
from typing import Final

import cachetools

CONNECTIONS: Final = 256
CONNECTIONS_PER_PEER: Final = 32
"""More than an operator has at once."""

PEERS: Final = 4096
"""Addresses that are remembered; the one not heard of for the longest is forgotten."""


class Slot:
    """An open connection's place among all; idle until a whole head has come."""

    def __init__(self, peer: str, drop: Callable[[], None], limits: "ConnectionLimits") -> None:
        self.peer, self.drop = peer, drop
        self._limits = limits

    def busy(self) -> None:
        """A call is being answered."""
        self._limits.idle.pop(self, None)

    def rest(self) -> None:
        """No call is under way."""
        if self in self._limits.taken:
            self._limits.idle[self] = None
            self._limits.idle.move_to_end(self)

    def free(self) -> None:
        """The connection is closed."""
        self._limits.idle.pop(self, None)
        self._limits.taken.discard(self)


class ConnectionLimits:
    """Who has how many connections; not thread-safe."""

    def __init__(self, *, most: int = CONNECTIONS, per_peer: int = CONNECTIONS_PER_PEER) -> None:
        self._most, self._per_peer = most, per_peer
        self.taken: set[Slot] = set()
        self.idle: collections.OrderedDict[Slot, None] = collections.OrderedDict()
        """Those without a call, the one that has waited for the longest first."""

    def take(self, peer: str, drop: Callable[[], None]) -> Slot | None:
        """A slot for one more connection; None: every one that could make room is busy.

        Args:
            peer: the address that it comes from.
            drop: closes the connection at once; called when another needs the room.
        """
        if sum(slot.peer == peer for slot in self.taken) >= self._per_peer:
            has_room = self._drop_idle(peer)
        else:
            has_room = len(self.taken) < self._most or self._drop_idle()
        if not has_room:
            return None
        slot = Slot(peer, drop, self)
        self.taken.add(slot)
        slot.rest()
        return slot

    def _drop_idle(self, peer: str | None = None) -> bool:
        for slot in self.idle:
            if peer in {None, slot.peer}:
                slot.free()
                slot.drop()
                return True
        return False


class TokenBuckets:
    """Lets each address do something `burst` times at once, and then once in `seconds`."""

    def __init__(self, *, burst: int, seconds: float, clock: Callable[[], float]) -> None:
        self._burst, self._seconds, self._clock = burst, seconds, clock
        self._left: cachetools.LRUCache[str, tuple[float, float]] = cachetools.LRUCache(PEERS)
        """What was left at which time."""

    def take(self, peer: str) -> bool:
        """Whether the address may do it once more now."""
        left = self._now(peer)
        if left < 1:
            return False
        self._left[peer] = left - 1, self._clock()
        return True

    def put_back(self, peer: str) -> None:
        """What was taken harmed nobody."""
        self._left[peer] = min(self._now(peer) + 1, self._burst), self._clock()

    def _now(self, peer: str) -> float:
        left, at = self._left.get(peer, (float(self._burst), self._clock()))
        return min(left + (self._clock() - at) / self._seconds, self._burst)
