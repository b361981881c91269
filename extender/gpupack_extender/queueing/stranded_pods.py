# SPDX-License-Identifier: Apache-2.0
"""Tells standalone pods that their only node cannot take them, by a condition and an event."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from gpupack_crds import names
from gpupack_extender.queueing.condition_notes import write_condition
from gpupack_kube import objects
from gpupack_kube.client import Api
from gpupack_kube.events import About, EventWriter, Said
from gpupack_scheduling.ledger.ledger import Ledger
from gpupack_scheduling.queueing.stranded import Stranded

LOOK_SECONDS: Final = 2.0
MAX_WRITES: Final = 20
"""At one look."""
AGAIN_SECONDS: Final = 60.0
"""Of one pod: the watch shows a write soon, and a pod that refuses it is left alone for a while."""


class StrandedPods:
    """A task of the extender.

    Args:
        api: where the pods are.
        ledger: which pods are bound after all.
        stranded: which pods are, whenever it is asked.
        events: writes events about the pods.
        decides: whether this process does.
    """

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        stranded: Callable[[], Iterable[Stranded]],
        events: EventWriter,
        *,
        decides: Callable[[], bool],
    ) -> None:
        self._api, self._ledger, self._decides = api, ledger, decides
        self._stranded, self._events = stranded, events
        self._written_at: dict[str, float] = {}
        """By UID, monotonic seconds."""

    async def run(self) -> None:
        """Tell for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._decides():
                await self.look(time.monotonic())

    async def look(self, now: float) -> None:
        """Write the conditions that say something else by now."""
        self._written_at = {
            uid: at for uid, at in self._written_at.items() if now - at < AGAIN_SECONDS
        }
        claims = self._ledger.claims.pods
        told = (claims[uid] for uid in sorted(self._ledger.pods.called_stranded) if uid in claims)
        news: list[tuple[objects.ObjectMeta, Stranded | None]] = [
            (each.pod.metadata, each) for each in self._stranded() if not _is_told(each)
        ]
        for claim in told:
            meta = objects.ObjectMeta(name=claim.name, namespace=claim.namespace, uid=claim.uid)
            news.append((meta, None))
        due = [(meta, each) for meta, each in news if meta.uid not in self._written_at]
        for meta, each in due[:MAX_WRITES]:
            self._written_at[meta.uid] = now
            await self._tell(meta, each)

    async def _tell(self, meta: objects.ObjectMeta, stranded: Stranded | None) -> None:
        condition = {
            "type": names.STRANDED_CONDITION,
            "status": "True" if stranded else "False",
            "reason": stranded.reason if stranded else "Bound",
            "message": stranded.text if stranded else "the node took the pod",
        }
        if await write_condition(self._api, meta, condition) and stranded:
            about = objects.ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid)
            said = Said("Warning", stranded.reason, stranded.text)
            await self._events.write(About("v1", "Pod", about), said)


def _is_told(stranded: Stranded) -> bool:
    told = (c for c in stranded.pod.status.conditions if c.type == names.STRANDED_CONDITION)
    return any(c.status == "True" and c.reason == stranded.reason for c in told)
