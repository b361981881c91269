# SPDX-License-Identifier: Apache-2.0
"""Tells pods what there is about their GPUs, by a condition and an event, and the end of it.

That they are idle for too long, or that one of them failed. Each is written when it changes, and so
many at a look.
"""

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from gpupack_kube import errors, objects
from gpupack_kube.client import Api
from gpupack_kube.events import About, EventWriter, Said
from gpupack_scheduling.ledger.claims import PodClaim, State
from gpupack_scheduling.ledger.ledger import Ledger
from gpupack_scheduling.ledger.watched_pod import WATCHED_PODS
from gpupack_scheduling.queueing.conditions import Kind, Note

log = logging.getLogger(__name__)

MOST_WRITES: Final = 20
"""At one look."""
AGAIN_SECONDS: Final = 60.0
"""Of one pod: the watch shows a write soon, and a pod that refuses it is left alone for a while."""


class ConditionNotes:
    """A task beside the queue's.

    Args:
        api: where the pods are.
        ledger: who holds GPUs.
        kind: of the condition.
        wanted: of whom it is true, whenever it is asked.
        events: told to the pods' owners.
        decides: whether this process does.
    """

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        kind: Kind,
        wanted: Callable[[], Iterable[Note]],
        events: EventWriter,
        *,
        decides: Callable[[], bool],
    ) -> None:
        self._api, self._ledger, self._kind = api, ledger, kind
        self._wanted, self._events = wanted, events
        self._decides = decides
        self._written_at: dict[str, float] = {}
        """By UID, monotonic seconds."""
        self.pods = self.gpus = 0
        """Of how many it was true at the last look."""

    async def run(self) -> None:
        """Tell for ever."""
        while True:
            await asyncio.sleep(self._kind.look_seconds)
            if self._decides():
                await self.look(time.monotonic())

    async def look(self, now: float) -> None:
        """Write the conditions that say something else by now."""
        wanted = {note.claim.uid: note for note in self._wanted()}
        self.pods = len(wanted)
        self.gpus = sum(len(note.claim.placement.devices) for note in wanted.values())
        self._written_at = {
            uid: at for uid, at in self._written_at.items() if now - at < AGAIN_SECONDS
        }
        called, claims = self._kind.called(self._ledger), self._ledger.claims.pods
        news = [note.claim for uid, note in wanted.items() if uid not in called]
        news += [claims[uid] for uid in sorted(called - wanted.keys()) if uid in claims]
        due = [
            claim
            for claim in news
            if claim.uid not in self._written_at and claim.state is State.BOUND
        ]
        for claim in due[:MOST_WRITES]:
            self._written_at[claim.uid] = now
            await self._tell(claim, wanted.get(claim.uid))

    async def _tell(self, claim: PodClaim, note: Note | None) -> None:
        kind = self._kind
        condition = {
            "type": kind.condition,
            "status": "True" if note else "False",
            "reason": kind.reason if note else kind.over_reason,
            "message": note.text if note else kind.over_text,
        }
        meta = objects.ObjectMeta(name=claim.name, namespace=claim.namespace, uid=claim.uid)
        if await write_condition(self._api, meta, condition) and note:
            said = Said("Warning", kind.reason, f"{note.text}{note.advice}")
            await self._events.write(About("v1", "Pod", meta), said)


async def write_condition(api: Api, pod: objects.ObjectMeta, condition: dict[str, str]) -> bool:
    """Write a condition that has changed into a pod, and tell whether it was written."""
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {
        "metadata": {"uid": pod.uid},
        "status": {"conditions": [condition | {"lastTransitionTime": now}]},
    }
    try:
        await api.merge(
            WATCHED_PODS,
            pod.name,
            body,
            namespace=pod.namespace,
            subresource="status",
            strategic=True,
        )
    except (errors.NotFound, errors.Conflict):
        return False
    except errors.KubeError as error:
        name = f"{pod.namespace}/{pod.name}"
        log.warning("cannot tell pod %s of %s: %s", name, condition["type"], error)
        return False
    return True
