# SPDX-License-Identifier: Apache-2.0
"""Tells pods that their GPUs are idle for too long, by a condition and an event, and the end of it.

Each is written when it changes, and so many at a look. An agent says nothing of a short rest.
"""

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable
from typing import Final

from gpupack_crds import names
from gpupack_extender.ledger.claims import PodClaim, State
from gpupack_extender.ledger.ledger import Ledger
from gpupack_extender.ledger.watched_pod import WATCHED_PODS
from gpupack_extender.queueing.idling import REASON, IdlePod
from gpupack_kube import errors, objects
from gpupack_kube.client import Api
from gpupack_kube.events import About, EventWriter, Said

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
MOST_WRITES: Final = 20
"""At one look."""
AGAIN_SECONDS: Final = 60.0
"""Of one pod: the watch shows a write soon, and a pod that refuses it is left alone for a while."""


class IdleNotes:
    """A task beside the queue's.

    Args:
        api: where the pods are.
        ledger: who holds GPUs, and of whom it was told.
        idle: whose are idle for too long, whenever it is asked.
        events: told to the pods' owners.
        decides: whether this process does.
    """

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        idle: Callable[[], list[IdlePod]],
        events: EventWriter,
        *,
        decides: Callable[[], bool],
    ) -> None:
        self._api, self._ledger, self._idle, self._events = api, ledger, idle, events
        self._decides = decides
        self._written_at: dict[str, float] = {}
        """By UID, monotonic seconds."""
        self.pods = self.gpus = 0
        """How many were idle for too long at the last look."""

    async def run(self) -> None:
        """Tell for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._decides():
                await self.look(time.monotonic())

    async def look(self, now: float) -> None:
        """Write the conditions that say something else by now."""
        idle = {pod.claim.uid: pod for pod in self._idle()}
        self.pods = len(idle)
        self.gpus = sum(len(pod.claim.placement.devices) for pod in idle.values())
        self._written_at = {
            uid: at for uid, at in self._written_at.items() if now - at < AGAIN_SECONDS
        }
        called, claims = self._ledger.pods.called_idle, self._ledger.claims.pods
        news = [pod.claim for uid, pod in idle.items() if uid not in called]
        news += [claims[uid] for uid in sorted(called - idle.keys()) if uid in claims]
        due = [
            claim
            for claim in news
            if claim.uid not in self._written_at and claim.state is State.BOUND
        ]
        for claim in due[:MOST_WRITES]:
            self._written_at[claim.uid] = now
            await self._tell(claim, idle.get(claim.uid))

    async def _tell(self, claim: PodClaim, idle: IdlePod | None) -> None:
        text = idle.text if idle else "its GPUs were used again, or it is not known any more"
        condition = {
            "type": names.IDLE_CONDITION,
            "status": "True" if idle else "False",
            "reason": REASON if idle else "GpuInUse",
            "message": text,
            "lastTransitionTime": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"metadata": {"uid": claim.uid}, "status": {"conditions": [condition]}}
        try:
            await self._api.merge(
                WATCHED_PODS,
                claim.name,
                body,
                namespace=claim.namespace,
                subresource="status",
                strategic=True,
            )
        except (errors.NotFound, errors.Conflict):
            return
        except errors.KubeError as error:
            name = f"{claim.namespace}/{claim.name}"
            log.warning("cannot tell pod %s that its GPUs are idle: %s", name, error)
            return
        if idle:
            meta = objects.ObjectMeta(name=claim.name, namespace=claim.namespace, uid=claim.uid)
            note = f"{text}{_advice(idle)}"
            await self._events.write(About("v1", "Pod", meta), Said("Warning", REASON, note))


def _advice(idle: IdlePod) -> str:
    if idle.is_reclaimed:
        return "; it is evicted, as its owner wants"
    return f"; delete it, or annotate it {names.RECLAIM_ANNOTATION}=true to have that done"
