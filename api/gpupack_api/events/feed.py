# SPDX-License-Identifier: Apache-2.0
"""Once a second: which nodes and jobs have changed."""

import asyncio
import collections
import dataclasses
import datetime as dt
from collections.abc import Iterable
from typing import Final

from gpupack_api.history import History
from gpupack_api.node_views import NodeView, NodeViews, Totals
from gpupack_api.read_model import JobKey, ReadModel

TICK_SECONDS: Final = 1.0

KEPT_TICKS: Final = 60
"""Whoever has seen none of these is too slow."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tick:
    """What changed at one tick: names, no values."""

    number: int
    nodes: frozenset[str] = frozenset()
    jobs: frozenset[JobKey] = frozenset()
    cluster: bool = False


class Feed:
    """Of one process. While nobody listens it does nothing.

    Attributes:
        nodes: by name, as of the last tick.
        totals: of the cluster, likewise.
        listeners: how many there are.
        over: why all streams end; empty: they go on.
    """

    def __init__(self, model: ReadModel, views: NodeViews, history: History) -> None:
        self._model, self._views, self._history = model, views, history
        self._log: collections.deque[Tick] = collections.deque(maxlen=KEPT_TICKS)
        self._next = asyncio.Event()
        self._jobs: set[JobKey] = set()
        self._missed = False
        """Jobs changed while nobody listened; of which is not kept."""
        self._sampled: dt.datetime | None = None
        self.number = 0
        self.nodes: dict[str, NodeView] = {}
        self.totals = Totals()
        self.listeners = 0
        self.over = ""
        model.jobs.told = self._see_job

    async def run(self) -> None:
        """Tick for ever."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self.listeners:
                self.tick()

    def join(self) -> int:
        """Count a listener; the tick that it has seen all of."""
        if not self.listeners:
            self.tick()
        self.listeners += 1
        return self.number

    def leave(self) -> None:
        """It listens no more."""
        self.listeners -= 1

    def end(self, why: str) -> None:
        """All streams end, and none begins any more."""
        self.over = why
        self._wake()

    def tick(self) -> None:
        """Look at what has changed since the last time, and wake who waits for it."""
        if self._model.missing():
            return
        nodes = {view.node_name: view for view in self._views.all()}
        found = Tick(
            self.number + 1,
            frozenset(_changed(self.nodes, nodes)),
            frozenset(self._jobs),
            self._see_cluster(),
        )
        self.nodes, self._jobs = nodes, set()
        is_new = found.nodes or found.jobs or found.cluster or self._missed
        self._missed = False
        if is_new:
            self.number = found.number
            self._log.append(found)
            self._wake()

    def since(self, seen: int) -> Tick | None:
        """Everything that changed after this tick, as one; None: that is too long ago."""
        if seen < self.number - len(self._log):
            return None
        later = [tick for tick in self._log if tick.number > seen]
        return Tick(
            self.number,
            frozenset().union(*(tick.nodes for tick in later)),
            frozenset().union(*(tick.jobs for tick in later)),
            any(tick.cluster for tick in later),
        )

    async def wait(self, seen: int, *, seconds: float) -> None:
        """Until there is a later tick, all is over, or so much time has passed."""
        if self.number > seen or self.over:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._next.wait()
        except TimeoutError:
            return

    def _see_job(self, keys: Iterable[JobKey]) -> None:
        if self.listeners:
            self._jobs.update(keys)
        else:
            self._missed = True

    def _see_cluster(self) -> bool:
        """Whether figures of the cluster changed, or there is another sample of them."""
        totals, samples = self._views.totals(), self._history.samples
        sampled = samples[-1].timestamp if samples else None
        changed = (totals, sampled) != (self.totals, self._sampled)
        self.totals, self._sampled = totals, sampled
        return changed

    def _wake(self) -> None:
        waiting, self._next = self._next, asyncio.Event()
        waiting.set()


def _changed(before: dict[str, NodeView], now: dict[str, NodeView]) -> Iterable[str]:
    """Names of nodes that came, went or are another view."""
    yield from before.keys() - now.keys()
    for name, view in now.items():
        known = before.get(name)
        if known is not view and known != view:
            yield name
