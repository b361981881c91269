# SPDX-License-Identifier: Apache-2.0
"""Whose turn has come, for an operator that waits to hear of it.

Turns are numbered. Who asks says which number he has heard last, and gets what came since, at once
or when something comes. Who has heard nothing of this queue yet, or too long ago, is told to ask
for everything anew: that is always right, and costs one call for each job that waits.
"""

import asyncio
import collections
import dataclasses
import uuid
from typing import Final

from gpupack_crds.plan import Drained, JobName, MoveOrder, Stop, TurnsResponse

KEPT: Final = 4096
"""An operator that is further behind asks for everything anew."""


@dataclasses.dataclass(frozen=True, slots=True)
class Orders:
    """What the operator is to do of which no GPUJob's status says so.

    Attributes:
        stops: attempts that are to end for pods.
        drained: attempts that are to end for a maintenance, or as a GPU failed.
        moves: attempts that are to go on elsewhere.
        grows: attempts for which places of more workers are held.
    """

    stops: tuple[Stop, ...] = ()
    drained: tuple[Drained, ...] = ()
    moves: tuple[MoveOrder, ...] = ()
    grows: tuple[str, ...] = ()


class Turns:
    """Of one queue, from when it begins to lead until it begins anew."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self.begin()

    def begin(self) -> None:
        """Nobody waits any more; all who do ask anew."""
        self._queue = uuid.uuid4().hex
        self._number = 0
        self._orders = Orders()
        self._last: collections.deque[JobName | None] = collections.deque(maxlen=KEPT)
        """None: the orders have changed."""
        self._wake()

    def give(self, namespace: str, name: str) -> None:
        """It is the turn of this GPUJob: places are held for it."""
        self._count(JobName(namespace=namespace, name=name))

    def order(self, orders: Orders) -> None:
        """These and no others stand."""
        if orders != self._orders:
            self._orders = orders
            self._count(None)

    async def since(self, queue: str, number: int, *, seconds: float) -> TurnsResponse:
        """What came after `number`; waits for so long for something to come."""
        try:
            async with asyncio.timeout(seconds):
                while (queue, number) == (self._queue, self._number):
                    await self._news.wait()
        except TimeoutError:
            pass
        missed = self._number - number
        if queue != self._queue or not 0 <= missed <= len(self._last):
            return self._answer(anew=True)
        return self._answer(tuple(filter(None, tuple(self._last)[len(self._last) - missed :])))

    def _answer(self, jobs: tuple[JobName, ...] = (), *, anew: bool = False) -> TurnsResponse:
        return TurnsResponse(
            queue=self._queue,
            number=self._number,
            jobs=jobs,
            anew=anew,
            stops=self._orders.stops,
            drained=self._orders.drained,
            moves=self._orders.moves,
            grows=self._orders.grows,
        )

    def _count(self, turn: JobName | None) -> None:
        self._number += 1
        self._last.append(turn)
        self._wake()

    def _wake(self) -> None:
        """Whoever waits looks once; who comes later waits for the next."""
        self._news.set()
        self._news = asyncio.Event()
