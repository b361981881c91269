# SPDX-License-Identifier: Apache-2.0
"""Writes down which GPUs are in quarantine, as `decision.quarantine` has it.

Only GPUNodes about which there is something to decide are kept: there are thousands of others.
"""

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from gpupack_crds.gpunode import Quarantine
from gpupack_crds.kinds import GPUNODES, GpuNode
from gpupack_kube import errors
from gpupack_kube.client import Api
from gpupack_kube.events import About, EventWriter, Reporter, Said
from gpupack_kube.objects import ObjectMeta
from gpupack_operator.decision.quarantine import decided, needs_look

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
AGAIN_SECONDS: Final = 5.0
"""After a write that failed."""
MOST_WRITES: Final = 20
"""At one look."""
EVENTS_NAMESPACE: Final = "default"
"""Where events about objects of no namespace lie."""


class Quarantines:
    """A reflector's store, and the task that writes.

    Args:
        api: where GPUNodes are.
        reporter: who writes events about them.
        probation_seconds: how long a GPU must have stayed well.
        now: by the API server's clock.
    """

    def __init__(
        self, api: Api, *, reporter: str, probation_seconds: float, now: Callable[[], dt.datetime]
    ) -> None:
        self._api, self._probation_seconds, self._now = api, probation_seconds, now
        self._events = EventWriter(api, Reporter("gpupack.dev/operator", reporter, "Quarantine"))
        self._nodes: dict[str, GpuNode] = {}
        self._look_at: dict[str, dt.datetime] = {}
        """When each is to be looked at; a missing one is not before it changes."""

    def replace(self, items: list[GpuNode]) -> None:
        """These are all."""
        self._nodes.clear()
        self._look_at.clear()
        for item in items:
            self.upsert(item)

    def upsert(self, item: GpuNode) -> None:
        """A GPUNode appeared or changed."""
        if needs_look(item):
            self._nodes[item.metadata.name] = item
            self._look_at[item.metadata.name] = self._now()
        else:
            self.remove(item)

    def remove(self, item: GpuNode) -> None:
        """It is gone, or there is nothing to decide about it."""
        self._nodes.pop(item.metadata.name, None)
        self._look_at.pop(item.metadata.name, None)

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Write what has changed."""
        now = self._now()
        due = [name for name, at in self._look_at.items() if at <= now]
        for name in due[:MOST_WRITES]:
            await self._see(self._nodes[name], now)

    async def _see(self, node: GpuNode, now: dt.datetime) -> None:
        name = node.metadata.name
        entries, again_at = decided(node, now, probation_seconds=self._probation_seconds)
        if entries == node.spec.quarantine:
            self._set_look(name, again_at)
            return
        # Whatever becomes of the write, the watch shows it; should it not, it is tried again.
        self._set_look(name, now + dt.timedelta(seconds=AGAIN_SECONDS))
        body: dict[str, Any] = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"quarantine": msgspec.to_builtins(entries) or None},
        }
        try:
            await self._api.merge(GPUNODES, name, body)
        except (errors.NotFound, errors.Conflict):
            return
        except errors.KubeError as error:
            log.warning("cannot write the quarantine of GPUNode %s: %s", name, error)
            return
        meta = ObjectMeta(name=name, namespace=EVENTS_NAMESPACE, uid=node.metadata.uid)
        for said in news(node.spec.quarantine, entries):
            await self._events.write(About("gpupack.dev/v1alpha1", "GPUNode", meta), said)

    def _set_look(self, name: str, at: dt.datetime | None) -> None:
        """It may have gone, or be another one, while something was awaited."""
        if at is None:
            self._look_at.pop(name, None)
        elif name in self._nodes:
            self._look_at[name] = at


def news(before: tuple[Quarantine, ...], after: tuple[Quarantine, ...]) -> Iterator[Said]:
    """What an administrator is told of the change."""
    known, left = {each.gpu: each for each in before}, {each.gpu: each for each in after}
    for gpu, entry in left.items():
        if gpu in known and known[gpu].phase == entry.phase:
            continue
        if entry.phase == "Quarantined":
            yield Said("Warning", "Quarantined", f"{gpu} gets no new work: {entry.cause}")
        else:
            yield Said("Normal", "Probation", f"{gpu} is well again: it is used last for a while")
    for gpu in known.keys() - left.keys():
        yield Said("Normal", "Released", f"{gpu} is used as others are")
