# SPDX-License-Identifier: Apache-2.0
"""Messages in the PodScheduled condition of gated pods, which say why they wait.

kube-scheduler writes nothing there while the gate is closed, and the API server's own text does not
change. A message is updated soon after the pod was created, then later each time: the cost depends
on the number of pods and not on how often the queue changes.
"""

import heapq
import logging
import time
from collections.abc import Callable
from typing import Final

from gpupack_extender.looking import look_forever
from gpupack_kubeclient import errors, objects
from gpupack_kubeclient.client import Api
from gpupack_scheduler.ledger.pods import Pods
from gpupack_scheduler.ledger.watched_pod import WATCHED_PODS
from gpupack_scheduler.queueing.queue_owner import QueueOwner

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
FIRST_SECONDS: Final = 1.0
"""Delay of the first message; most pods are admitted before it."""
SECOND_SECONDS: Final = 15.0
LONGEST_SECONDS: Final = 600.0
MAX_AT_ONCE: Final = 5
"""Limit for one pass: to find a reason takes milliseconds if there are thousands of nodes."""


class PodNotes:
    """Task that writes the messages.

    Args:
        api: the API server with the pods.
        pods: the gated pods.
        owner: returns the reasons.
        decides: tells whether this process decides.
    """

    def __init__(
        self, api: Api, pods: Pods, owner: QueueOwner, *, decides: Callable[[], bool]
    ) -> None:
        self._api, self._pods, self._owner = api, pods, owner
        self._decides = decides
        self._after: dict[str, float] = {}
        """Seconds until the next update, by UID."""
        self._due: dict[str, list[tuple[float, str]]] = {}
        """Heaps of due times by namespace; the namespaces take turns."""

    async def run(self) -> None:
        """Write in an endless loop."""
        await look_forever(
            lambda: self.look(time.monotonic()), seconds=LOOK_SECONDS, decides=self._decides
        )

    async def look(self, now: float) -> None:
        """Update the pods that are due, some at a time; none while other pods are admitted.

        Their reason then ends in a moment, and a write would conflict with the one that opens the
        gate.
        """
        if self._owner.admits_pods:
            return
        for uid in self._pods.gated.keys() - self._after.keys():
            self._later(self._pods.gated[uid], now, FIRST_SECONDS)
        for _ in range(MAX_AT_ONCE):
            pod = self._next(now)
            if pod is None:
                return
            await self._tell(pod)

    def _next(self, now: float) -> objects.Pod | None:
        """Return a pod that is due, of the namespace that has waited longest for its turn."""
        for namespace in tuple(self._due):
            heap = self._due.pop(namespace)
            while heap and heap[0][0] <= now:
                _, uid = heapq.heappop(heap)
                after, pod = self._after.pop(uid), self._pods.gated.get(uid)
                if pod is not None:
                    self._due[namespace] = heap
                    longer = SECOND_SECONDS if after < SECOND_SECONDS else 2 * after
                    self._later(pod, now, min(longer, LONGEST_SECONDS))
                    return pod
            if heap:
                self._due[namespace] = heap
        return None

    def _later(self, pod: objects.Pod, now: float, seconds: float) -> None:
        uid = pod.metadata.uid
        self._after[uid] = seconds
        heapq.heappush(self._due.setdefault(pod.metadata.namespace, []), (now + seconds, uid))

    async def _tell(self, pod: objects.Pod) -> None:
        namespace, name = pod.key
        text = self._owner.explain_pod(pod)
        if not text or text == _shown(pod):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": text,
        }
        version = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        body = {"metadata": version, "status": {"conditions": [condition]}}
        try:
            await self._api.merge(
                WATCHED_PODS,
                name,
                body,
                namespace=namespace,
                subresource="status",
                strategic=True,
            )
        except (errors.NotFound, errors.Conflict):
            return
        except errors.KubeError as error:
            log.warning("cannot tell pod %s/%s why it waits: %s", namespace, name, error)


def _shown(pod: objects.Pod) -> str:
    found = (each for each in pod.status.conditions if each.type == "PodScheduled")
    return next((each.message for each in found), "")
