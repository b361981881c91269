# SPDX-License-Identifier: Apache-2.0
"""Conditions and events that inform standalone pods about problems with their GPUs.

They report that GPUs are idle for too long, that one of them failed, or that the only node that the
pod may use cannot accept it. Each is written when it changes, with a limited number per pass.
"""

import datetime as dt
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from gpupack_crds.times import format_time
from gpupack_extender.looking import look_forever
from gpupack_kubeclient import errors, objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.events import About, EventWriter, Said
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.watched_pod import WATCHED_PODS
from gpupack_scheduler.queueing.pods.conditions import Kind, Note, ReportedPod

log = logging.getLogger(__name__)

MAX_WRITES: Final = 20
"""Largest number of writes in one pass."""
AGAIN_SECONDS: Final = 60.0
"""Interval for one pod: the watch soon shows a write, and a pod that refuses it is left alone."""


class ConditionWriter:
    """Task that writes the conditions of one kind.

    Args:
        api: the API server with the pods.
        ledger: what the watch shows of pods.
        kind: the kind of condition.
        wanted: returns the pods for which it is true now.
        events: writes events for the pods' owners.
        decides: tells whether this process decides.
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
        """Times of the last writes by UID, in monotonic seconds."""
        self.pods = self.gpus = 0
        """Numbers of pods and GPUs for which it was true in the last pass."""

    async def run(self) -> None:
        """Write in an endless loop."""
        await look_forever(
            lambda: self.look(time.monotonic()),
            seconds=self._kind.look_seconds,
            decides=self._decides,
        )

    async def look(self, now: float) -> None:
        """Write the conditions that have changed."""
        wanted = {note.pod.uid: note for note in self._wanted()}
        self.pods = len(wanted)
        self.gpus = sum(note.gpus for note in wanted.values())
        self._written_at = {
            uid: at for uid, at in self._written_at.items() if now - at < AGAIN_SECONDS
        }
        called = self._kind.called(self._ledger)
        news: list[Note | ReportedPod] = [
            note for uid, note in wanted.items() if not _says(called.get(uid), note)
        ]
        news += [each for uid, each in called.items() if uid not in wanted]
        due = [each for each in news if each.pod.uid not in self._written_at]
        for each in due[:MAX_WRITES]:
            self._written_at[each.pod.uid] = now
            await (self._tell(each) if isinstance(each, Note) else self._end(each))

    async def _tell(self, note: Note) -> None:
        if await self._write(note.pod, "True", note.reason, note.text):
            meta = note.pod
            about = objects.ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid)
            said = Said("Warning", note.reason, f"{note.text}{note.advice}")
            await self._events.write(About("v1", "Pod", about), said)

    async def _end(self, called: ReportedPod) -> None:
        await self._write(called.pod, "False", called.over.reason, called.over.text)

    async def _write(self, pod: objects.ObjectMeta, status: str, reason: str, text: str) -> bool:
        """Write a condition that has changed into a pod, and return whether it was written."""
        now = format_time(dt.datetime.now(dt.UTC))
        condition = {
            "type": self._kind.condition,
            "status": status,
            "reason": reason,
            "message": text,
            "lastTransitionTime": now,
        }
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        try:
            await self._api.merge(
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
            log.warning("cannot tell pod %s of %s: %s", name, self._kind.condition, error)
            return False
        return True


def _says(called: ReportedPod | None, note: Note) -> bool:
    """Tell whether the pod's condition says so already."""
    return called is not None and called.reason in {"", note.reason}
