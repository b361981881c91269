# SPDX-License-Identifier: Apache-2.0
"""The changed nodes and jobs, once a second."""

import asyncio
import collections
import dataclasses
import datetime as dt
from collections.abc import Iterable
from typing import Final

from gpupack_apiserver.history import History
from gpupack_apiserver.node_views import NodeViews, Totals
from gpupack_apiserver.read_model import JobKey, ReadModel
from gpupack_restapi.nodes import NodeView

TICK_SECONDS: Final = 1.0

MAX_TICKS: Final = 60
"""Kept ticks; a listener whose last tick is older is too slow."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tick:
    """The changes of one tick: names without values."""

    number: int
    nodes: frozenset[str] = frozenset()
    jobs: frozenset[JobKey] = frozenset()
    cluster: bool = False


class Feed:
    """The changes in one process. Without listeners it does nothing.

    Attributes:
        nodes: nodes by name, at the last tick.
        totals: figures of the cluster, at the last tick.
        listeners: number of listeners.
        end_reason: why all streams end; empty: they continue.
    """

    def __init__(self, model: ReadModel, views: NodeViews, history: History) -> None:
        self._model, self._views, self._history = model, views, history
        self._log: collections.deque[Tick] = collections.deque(maxlen=MAX_TICKS)
        self._next = asyncio.Event()
        self._jobs: set[JobKey] = set()
        self._missed = False
        """Whether jobs changed without a listener; their names are not kept."""
        self._sampled: dt.datetime | None = None
        self.number = 0
        self.nodes: dict[str, NodeView] = {}
        self.totals = Totals()
        self.listeners = 0
        self.end_reason = ""
        model.jobs.on_change = self._record_jobs

    async def run(self) -> None:
        """Run ticks without end."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self.listeners:
                self.tick()

    def join(self) -> int:
        """Add a listener; return the tick that it has seen completely."""
        if not self.listeners:
            self.tick()
        self.listeners += 1
        return self.number

    def leave(self) -> None:
        """Remove a listener."""
        self.listeners -= 1

    def end(self, why: str) -> None:
        """End all streams, and allow no new ones."""
        self.end_reason = why
        self._wake()

    def tick(self) -> None:
        """Find the changes since the last time, and wake the waiting streams."""
        if self._model.missing():
            return
        nodes = {view.node_name: view for view in self._views.all()}
        found = Tick(
            self.number + 1,
            frozenset(_changed(self.nodes, nodes)),
            frozenset(self._jobs),
            self._update_cluster(),
        )
        self.nodes, self._jobs = nodes, set()
        is_new = found.nodes or found.jobs or found.cluster or self._missed
        self._missed = False
        if is_new:
            self.number = found.number
            self._log.append(found)
            self._wake()

    def changes_since(self, seen: int) -> Tick | None:
        """Return all changes after this tick as one; None: the tick is too old."""
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
        """Wait for a later tick, the end of all streams, or the given seconds."""
        if self.number > seen or self.end_reason:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._next.wait()
        except TimeoutError:
            return

    def _record_jobs(self, keys: Iterable[JobKey]) -> None:
        if self.listeners:
            self._jobs.update(keys)
        else:
            self._missed = True

    def _update_cluster(self) -> bool:
        """Return whether the cluster's figures changed, or there is a new sample of them."""
        totals, samples = self._views.totals(), self._history.samples
        sampled = samples[-1].timestamp if samples else None
        changed = (totals, sampled) != (self.totals, self._sampled)
        self.totals, self._sampled = totals, sampled
        return changed

    def _wake(self) -> None:
        waiting, self._next = self._next, asyncio.Event()
        waiting.set()


def _changed(before: dict[str, NodeView], now: dict[str, NodeView]) -> Iterable[str]:
    """Yield names of nodes that were added, removed or changed."""
    yield from before.keys() - now.keys()
    for name, view in now.items():
        known = before.get(name)
        if known is not view and known != view:
            yield name
