# SPDX-License-Identifier: Apache-2.0
"""The order of TLS handshakes, which take time on the loop before the caller is known.

    of one address       PEER_BURST at once, then PEER_PER_SECOND
    of all               BURST at once, then PER_SECOND

Addresses take turns, and every other turn is for addresses that made an allowed call recently: any
number of other addresses delays those by two turns only. A caller without a turn waits and is not
refused: the operator and strangers may be behind one masqueraded address.
"""

import asyncio
import collections
import time
from collections.abc import Callable
from typing import Final

import cachetools

from gpupack_httpserver.peer_limits import PEERS, TokenBuckets

PEER_BURST: Final = 32
PEER_PER_SECOND: Final = 20.0
"""Rate of one address. An operator needs one in 15 s, a metrics scraper one in 30."""

BURST: Final = 64
PER_SECOND: Final = 64.0
"""Rate of all addresses.

It takes an eighth of a core with an RSA-2048 key (2.1 ms each), and less than half of that with the
chart's key on P-256.
"""

WAIT_SECONDS: Final = 5.0
WELCOME_SECONDS: Final = 3600.0

_ALL: Final = ""

Waiting = collections.OrderedDict[asyncio.Future[None], None]
Lane = collections.OrderedDict[str, Waiting]
"""Waiting handshakes by address, the next one first."""


class Handshakes:
    """A scheduler of turns, for one event loop."""

    def __init__(
        self,
        *,
        per_second: float = PER_SECOND,
        burst: int = BURST,
        peer_per_second: float = PEER_PER_SECOND,
        peer_burst: int = PEER_BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._all = TokenBuckets(burst=burst, seconds=1 / per_second, clock=clock)
        self._peers = TokenBuckets(burst=peer_burst, seconds=1 / peer_per_second, clock=clock)
        self._tick = 1 / per_second
        self._welcome: cachetools.TTLCache[str, None] = cachetools.TTLCache(
            PEERS, WELCOME_SECONDS, clock
        )
        self._lanes: tuple[Lane, Lane] = (Lane(), Lane())
        """Waiting handshakes of known addresses, and of all others."""
        self._first = 0
        """The lane with the next turn."""
        self._timer: asyncio.TimerHandle | None = None

    def welcome(self, peer: str) -> None:
        """Record that an allowed call came from this address."""
        self._welcome[peer] = None

    async def turn(self, peer: str) -> None:
        """Wait for a turn of this address.

        Raises:
            TimeoutError: it had none within WAIT_SECONDS.
        """
        lane = self._lanes[peer not in self._welcome]
        mine = asyncio.get_running_loop().create_future()
        lane.setdefault(peer, Waiting())[mine] = None
        self._give()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await mine
        finally:
            _leave(lane, peer, mine)

    def _give(self) -> None:
        """Give all turns that are available now, and run again while a handshake waits."""
        while self._all.take(_ALL):
            given = self._next()
            if given is None:
                self._all.put_back(_ALL)
                break
            given.set_result(None)
        if self._timer is None and any(self._lanes):
            self._timer = asyncio.get_running_loop().call_later(self._tick, self._again)

    def _again(self) -> None:
        self._timer = None
        self._give()

    def _next(self) -> asyncio.Future[None] | None:
        for number in (self._first, 1 - self._first):
            lane = self._lanes[number]
            for peer, waiting in lane.items():
                mine = next((each for each in waiting if not each.done()), None)
                if mine is not None and self._peers.take(peer):
                    _leave(lane, peer, mine)
                    if peer in lane:
                        lane.move_to_end(peer)
                    self._first = 1 - number
                    return mine
        return None


def _leave(lane: Lane, peer: str, mine: asyncio.Future[None]) -> None:
    waiting = lane.get(peer)
    if waiting is not None:
        waiting.pop(mine, None)
        if not waiting:
            del lane[peer]
