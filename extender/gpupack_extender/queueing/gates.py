# SPDX-License-Identifier: Apache-2.0
"""Writes of the queue's decisions to waiting pods: opened gates, recorded preemptions.

    patch ─┬─ answered                     ─► the watch shows it
           ├─ the pod has changed          ─► read it: written, or not yet and patched again
           ├─ refused, or there is no pod  ─► place released, the pod is checked again soon
           └─ no answer                    ─► read it until it is known

Each pod has one write at a time. Its place is held while the outcome is unknown. Once the Lease is
lost nothing more is sent, and the new leader decides by what it reads.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from gpupack_crds.gpujob_status import Preemption
from gpupack_kubeclient import errors, objects
from gpupack_kubeclient.client import Api
from gpupack_scheduler.ledger.claims import Allocation
from gpupack_scheduler.ledger.gated_pod import GatedPodSpec
from gpupack_scheduler.ledger.ledger import Ledger, Outcome
from gpupack_scheduler.ledger.watched_pod import WATCHED_PODS
from gpupack_scheduler.queueing.pending import gate
from gpupack_scheduler.queueing.pods import admitted_pods
from gpupack_scheduler.requests.pod_groups import Membership

log = logging.getLogger(__name__)

AT_ONCE: Final = 16
PAUSE_SECONDS: Final = 1.0
"""Pause before a pod is read again, or written a third time; it grows each time."""
MAX_TRIES: Final = 6
AGAIN_SECONDS: Final = 5.0
"""Delay after a refusal until the pod is checked again."""
FIRST_SERVER_ERROR: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class _Write:
    """Write to a pod, with the test whether a pod contains it."""

    pod: objects.Pod
    place: Allocation | None
    """Place that is held for the pod during the write."""
    patch: Callable[[objects.Pod], objects.Json]
    is_written: Callable[[objects.Pod], bool]


class Gates:
    """Task that writes to gated pods.

    Args:
        api: the API server with the pods.
        ledger: holds their places.
        leads: tells whether this process may write.
    """

    def __init__(self, api: Api, ledger: Ledger, *, leads: Callable[[], bool]) -> None:
        self._api, self._ledger, self._leads = api, ledger, leads
        self._line: asyncio.Queue[str] = asyncio.Queue()
        self._wanted: dict[str, _Write] = {}
        """Writes that have not begun, by UID."""
        self._busy: set[str] = set()

    def open(
        self, pod: objects.Pod, place: Allocation | None, member: Membership | None = None
    ) -> None:
        """Open the gate soon; with a place, the queue has admitted the pod to it.

        `member`: with which gang of a pod group.
        """
        self._want(
            _Write(
                pod,
                place,
                lambda shown: gate.opening(shown, place, member),
                lambda shown: not shown.spec.scheduling_gates,
            )
        )

    def record(self, pod: objects.Pod, preemption: Preemption | None) -> None:
        """Record the pod's victims in its annotation; None: it has none any more."""
        text = None if preemption is None else gate.text_of(preemption)
        self._want(
            _Write(
                pod,
                None,
                lambda shown: gate.recording(shown, text),
                lambda shown: gate.recorded(shown) == text,
            )
        )

    async def run(self) -> None:
        """Execute the writes, in an endless loop."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work())

    def _want(self, write: _Write) -> None:
        """Queue a write; it replaces an earlier one of the same pod that has not begun."""
        uid = write.pod.metadata.uid
        self._wanted[uid] = write
        if uid not in self._busy:
            self._busy.add(uid)
            self._line.put_nowait(uid)

    async def _work(self) -> None:
        while True:
            uid = await self._line.get()
            while (write := self._wanted.pop(uid, None)) is not None:
                if not await self._write(write):
                    self._give_back(write)
                    again = asyncio.get_running_loop().call_later
                    again(AGAIN_SECONDS, self._ledger.changes.gate, uid)
            self._busy.discard(uid)

    async def _write(self, write: _Write) -> bool:
        """Write, and return whether it succeeded."""
        shown: objects.Pod | None = write.pod
        for tried in range(MAX_TRIES):
            await asyncio.sleep(PAUSE_SECONDS * max(tried - 1, 0))
            if shown is None or not self._leads() or not self._keep(write):
                return False
            outcome = await self._patch(shown, write.patch(shown))
            if outcome is not Outcome.UNKNOWN:
                return outcome is Outcome.LANDED
            shown = await self._read(write)
            if shown is not None and write.is_written(shown):
                return True
            if shown is not None and not _asks_for_the_same(shown, write.pod):
                return False
        return False

    async def _patch(self, pod: objects.Pod, patch: objects.Json) -> Outcome:
        namespace, name = pod.key
        try:
            await self._api.merge(WATCHED_PODS, name, patch, namespace=namespace)
        except errors.NotFound:
            return Outcome.NOT_LANDED
        except errors.Conflict:
            return Outcome.UNKNOWN
        except errors.Refused as error:
            log.warning("pod %s/%s cannot be written: %s", namespace, name, error)
            is_final = error.status < FIRST_SERVER_ERROR
            return Outcome.NOT_LANDED if is_final else Outcome.UNKNOWN
        except errors.KubeError as error:
            log.warning("pod %s/%s, written or not: %s", namespace, name, error)
            return Outcome.UNKNOWN
        return Outcome.LANDED

    async def _read(self, write: _Write) -> objects.Pod | None:
        """Return the pod's current state; None: no pod of that UID exists, or it cannot be read."""
        namespace, name = write.pod.key
        while self._leads():
            try:
                shown = await self._api.get(WATCHED_PODS, name, namespace=namespace)
            except errors.NotFound:
                return None
            except (errors.Unreachable, errors.Refused) as error:
                log.warning("reading pod %s/%s: %s", namespace, name, error)
                await asyncio.sleep(PAUSE_SECONDS)
                self._keep(write)
            except errors.KubeError as error:
                log.warning("reading pod %s/%s: %s", namespace, name, error)
                return None
            else:
                return shown if shown.metadata.uid == write.pod.metadata.uid else None
        return None

    def _keep(self, write: _Write) -> bool:
        """Tell whether the written place is held, and renew its hold."""
        if write.place is None:
            return True
        claim = self._ledger.claims.pods.get(write.pod.metadata.uid)
        if claim is None or claim.allocation != write.place:
            return False
        self._ledger.renew(claim, seconds=admitted_pods.hold_seconds(claim.member))
        return True

    def _give_back(self, write: _Write) -> None:
        """Release the pod's place because its gate is not open; an existing pod waits again."""
        claim = self._ledger.claims.pods.get(write.pod.metadata.uid)
        if write.place is not None and claim is not None and claim.allocation == write.place:
            self._ledger.release(claim)


def _asks_for_the_same(shown: objects.Pod, asked: objects.Pod) -> bool:
    """Tell whether the pod's allowed nodes are unchanged: those of a gated pod may be narrowed."""
    specs = [pod.spec for pod in (shown, asked)]
    rules = [spec.rules if isinstance(spec, GatedPodSpec) else None for spec in specs]
    return msgspec.json.encode(rules[0]) == msgspec.json.encode(rules[1])
