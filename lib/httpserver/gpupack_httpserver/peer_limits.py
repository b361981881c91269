# SPDX-License-Identifier: Apache-2.0
"""Limits of one address: open connections, and questions to the API server.

Pods can reach the plan API, so every user who may create pods can open connections and send tokens.
An address with too many connections, or one too many in all, loses the connection that has been
idle for the longest: a lost idle connection costs its owner a reconnect, a refused one a call.
"""

import collections
from collections.abc import Callable
from typing import Final

import cachetools

CONNECTIONS: Final = 256
CONNECTIONS_PER_PEER: Final = 32
"""Maximum for one address; more than an operator has at once."""

PEERS: Final = 4096
"""Number of remembered addresses; the least recently seen one is forgotten."""


class Slot:
    """An open connection's place among all; idle until a whole head has arrived."""

    def __init__(self, peer: str, drop: Callable[[], None], limits: "ConnectionLimits") -> None:
        self.peer, self.drop = peer, drop
        self._limits = limits

    def busy(self) -> None:
        """Mark the connection as busy with a call."""
        self._limits.idle.pop(self, None)

    def rest(self) -> None:
        """Mark the connection as idle."""
        if self in self._limits.taken:
            self._limits.idle[self] = None
            self._limits.idle.move_to_end(self)

    def free(self) -> None:
        """Release the slot of a closed connection."""
        self._limits.idle.pop(self, None)
        self._limits.taken.discard(self)


class ConnectionLimits:
    """Limits on connections, in total and for each address; not thread-safe."""

    def __init__(self, *, most: int = CONNECTIONS, per_peer: int = CONNECTIONS_PER_PEER) -> None:
        self._most, self._per_peer = most, per_peer
        self.taken: set[Slot] = set()
        self.idle: collections.OrderedDict[Slot, None] = collections.OrderedDict()
        """Slots without a call, the longest idle first."""

    def take(self, peer: str, drop: Callable[[], None]) -> Slot | None:
        """Return a slot for one more connection.

        None: every connection that could be dropped for it is busy.

        Args:
            peer: address of the connection.
            drop: closes the connection at once; called when another one needs the slot.
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
    """A rate limiter: each address may act `burst` times at once, and then once in `seconds`."""

    def __init__(self, *, burst: int, seconds: float, clock: Callable[[], float]) -> None:
        self._burst, self._seconds, self._clock = burst, seconds, clock
        self._left: cachetools.LRUCache[str, tuple[float, float]] = cachetools.LRUCache(PEERS)
        """Tokens that were left, and the time."""

    def take(self, peer: str) -> bool:
        """Take a token; return whether the address may act once more now."""
        left = self._now(peer)
        if left < 1:
            return False
        self._left[peer] = left - 1, self._clock()
        return True

    def put_back(self, peer: str) -> None:
        """Return a token whose use did no harm."""
        self._left[peer] = min(self._now(peer) + 1, self._burst), self._clock()

    def _now(self, peer: str) -> float:
        left, at = self._left.get(peer, (float(self._burst), self._clock()))
        return min(left + (self._clock() - at) / self._seconds, self._burst)
