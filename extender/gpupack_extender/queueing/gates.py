# SPDX-License-Identifier: Apache-2.0
"""Opens the gates of pods, several at a time.

    patch ─┬─ answered                     ─► open; the watch shows it
           ├─ the pod has changed          ─► read it: open, or gated still and patched anew
           ├─ refused, or there is no pod  ─► the place is given back, the pod looked at anew soon
           └─ no answer                    ─► read it until it is known

A place is held while nobody knows. Once the Lease is lost nothing more is sent, and who leads then
decides by what he reads.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from gpupack_extender.ledger.claims import Allocation
from gpupack_extender.ledger.ledger import Ledger, Outcome
from gpupack_extender.ledger.watched_pod import WATCHED_PODS
from gpupack_extender.queueing import gate
from gpupack_kube import errors, objects
from gpupack_kube.client import Api

log = logging.getLogger(__name__)

AT_ONCE: Final = 16
PAUSE_SECONDS: Final = 1.0
"""Before a pod is asked about again."""
AGAIN_SECONDS: Final = 5.0
"""After a refusal, until the pod is looked at anew."""
HELD_SECONDS: Final = 60.0
"""From each try on, for as long as nobody knows what became of the last one."""
FIRST_SERVER_ERROR: Final = 500


class Gates:
    """A task beside the queue's.

    Args:
        api: where the pods are.
        ledger: where their places are held.
        leads: whether this process may write.
    """

    def __init__(self, api: Api, ledger: Ledger, *, leads: Callable[[], bool]) -> None:
        self._api, self._ledger, self._leads = api, ledger, leads
        self._asked: asyncio.Queue[tuple[objects.Pod, Allocation | None]] = asyncio.Queue()
        self._opening: set[str] = set()

    def open(self, pod: objects.Pod, place: Allocation | None) -> None:
        """Have the gate opened soon; with a place: let in by the queue, to go there."""
        if pod.metadata.uid not in self._opening:
            self._opening.add(pod.metadata.uid)
            self._asked.put_nowait((pod, place))

    async def run(self) -> None:
        """Open what is to be opened, for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            pod, place = await self._asked.get()
            try:
                opened = await self._open(pod, place)
            finally:
                self._opening.discard(pod.metadata.uid)
            if not opened:
                asyncio.get_running_loop().call_later(
                    AGAIN_SECONDS, self._look_anew, pod.metadata.uid
                )

    async def _open(self, pod: objects.Pod, place: Allocation | None) -> bool:
        """Whether the gate is open."""
        shown: objects.Pod | None = pod
        while shown is not None and self._leads():
            self._keep(pod.metadata.uid)
            outcome = await self._patch(shown, place)
            if outcome is not Outcome.UNKNOWN:
                return outcome is Outcome.LANDED
            shown = await self._read(pod)
            if shown is not None and not shown.spec.scheduling_gates:
                return True
        return False

    async def _patch(self, pod: objects.Pod, place: Allocation | None) -> Outcome:
        namespace, name = pod.key
        try:
            await self._api.merge(WATCHED_PODS, name, gate.opening(pod, place), namespace=namespace)
        except errors.NotFound:
            return Outcome.NOT_LANDED
        except errors.Conflict:
            return Outcome.UNKNOWN
        except errors.Refused as error:
            log.warning("cannot open the gate of pod %s/%s: %s", namespace, name, error)
            is_final = error.status < FIRST_SERVER_ERROR
            return Outcome.NOT_LANDED if is_final else Outcome.UNKNOWN
        except errors.KubeError as error:
            log.warning("the gate of pod %s/%s, open or not: %s", namespace, name, error)
            return Outcome.UNKNOWN
        return Outcome.LANDED

    async def _read(self, pod: objects.Pod) -> objects.Pod | None:
        """The pod as it is now; None: there is none of that UID."""
        namespace, name = pod.key
        while self._leads():
            try:
                shown = await self._api.get(WATCHED_PODS, name, namespace=namespace)
            except errors.NotFound:
                return None
            except errors.KubeError as error:
                log.warning("reading pod %s/%s: %s", namespace, name, error)
                await asyncio.sleep(PAUSE_SECONDS)
                self._keep(pod.metadata.uid)
            else:
                return shown if shown.metadata.uid == pod.metadata.uid else None
        return None

    def _keep(self, uid: str) -> None:
        claim = self._ledger.claims.pods.get(uid)
        if claim is not None:
            self._ledger.renew(claim, seconds=HELD_SECONDS)

    def _look_anew(self, uid: str) -> None:
        """Its gate is not open: nothing is held for it, and it waits again if it is there still."""
        claim = self._ledger.claims.pods.get(uid)
        if claim is not None and uid in self._ledger.pods.gated:
            self._ledger.release(claim)
        self._ledger.changes.gate(uid)
