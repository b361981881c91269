# SPDX-License-Identifier: Apache-2.0
"""Evictions of standalone pods, by the API that respects their PodDisruptionBudgets.

If a budget refuses an eviction, it is requested again until the queue gives the preemption up.
"""

import http
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from gpupack_extender.looking import look_forever
from gpupack_kubeclient import errors, objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.events import About, EventWriter, Said
from gpupack_kubeclient.resources import PODS
from gpupack_scheduler.queueing.pods.conditions import Eviction

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
AGAIN_SECONDS: Final = 5.0
"""Interval after a refusal, or after an eviction whose pod has not ended."""


class Evictions:
    """Task that evicts pods.

    Args:
        api: the API server with the pods.
        wanted: returns the pods to evict now.
        events: writes events for the pods' owners.
        decides: tells whether this process decides.
    """

    def __init__(
        self,
        api: Api,
        wanted: Callable[[], Iterable[Eviction]],
        events: EventWriter,
        *,
        decides: Callable[[], bool],
    ) -> None:
        self._api, self._wanted, self._events, self._decides = api, wanted, events, decides
        self._asked: dict[str, float] = {}
        """Times of the last request by UID, in monotonic seconds."""
        self._notified: dict[str, str] = {}
        """Last event of each pod, by UID."""

    async def run(self) -> None:
        """Evict in an endless loop."""
        await look_forever(self.look, seconds=LOOK_SECONDS, decides=self._decides)

    async def look(self) -> None:
        """Evict the pods that are due."""
        wanted = {each.uid: each for each in self._wanted()}
        now = time.monotonic()
        self._asked = {uid: at for uid, at in self._asked.items() if uid in wanted}
        self._notified = {uid: note for uid, note in self._notified.items() if uid in wanted}
        for uid, eviction in wanted.items():
            is_due = now - self._asked.get(uid, -AGAIN_SECONDS) >= AGAIN_SECONDS
            if is_due and self._decides() and any(each.uid == uid for each in self._wanted()):
                self._asked[uid] = now
                await self._evict(eviction)

    async def _evict(self, pod: Eviction) -> None:
        path = PODS.path(pod.name, namespace=pod.namespace, subresource="eviction")
        body: objects.Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            await self._api.post(path, body, objects.Object)
        except (errors.NotFound, errors.Conflict):
            return
        except errors.Refused as error:
            by_budget = error.status == http.HTTPStatus.TOO_MANY_REQUESTS
            obstacle = "a PodDisruptionBudget does not allow it now" if by_budget else error.said
            log.warning("cannot evict pod %s/%s: %s", pod.namespace, pod.name, obstacle)
            await self._tell(pod, f"cannot be evicted {pod.why}: {obstacle}")
        except errors.KubeError as error:
            log.warning("evicting pod %s/%s: %s", pod.namespace, pod.name, error)
        else:
            await self._tell(pod, f"evicted {pod.why}")

    async def _tell(self, pod: Eviction, note: str) -> None:
        """Write an event, unless it repeats the pod's last one."""
        if self._notified.get(pod.uid) == note:
            return
        self._notified[pod.uid] = note
        meta = objects.ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
        await self._events.write(About("v1", "Pod", meta), Said("Normal", pod.reason, note))
