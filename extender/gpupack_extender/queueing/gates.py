# SPDX-License-Identifier: Apache-2.0
"""Writes into pods that wait what the queue decides: opens gates, records preemptions.

    patch ─┬─ answered                     ─► the watch shows it
           ├─ the pod has changed          ─► read it: written, or not yet and patched anew
           ├─ refused, or there is no pod  ─► a place is given back, the pod looked at anew soon
           └─ no answer                    ─► read it until it is known

Of one pod there is one write at a time. A place is held while nobody knows. Once the Lease is lost
nothing more is sent, and who leads then decides by what he reads.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from gpupack_crds.gpujob_status import Preemption
from gpupack_kube import errors, objects
from gpupack_kube.client import Api
from gpupack_scheduling.ledger.claims import Allocation
from gpupack_scheduling.ledger.gated_pod import GatedPodSpec
from gpupack_scheduling.ledger.ledger import Ledger, Outcome
from gpupack_scheduling.ledger.watched_pod import WATCHED_PODS
from gpupack_scheduling.queueing import gate, let_in

log = logging.getLogger(__name__)

AT_ONCE: Final = 16
PAUSE_SECONDS: Final = 1.0
"""Before a pod is asked about again, or written a third time; then longer each time."""
MAX_TRIES: Final = 6
AGAIN_SECONDS: Final = 5.0
"""After a refusal, until the pod is looked at anew."""
FIRST_SERVER_ERROR: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class _Write:
    """What is to be written into a pod, and how a pod is told into which it was."""

    pod: objects.Pod
    place: Allocation | None
    """That is held for it meanwhile."""
    patch: Callable[[objects.Pod], objects.Json]
    is_written: Callable[[objects.Pod], bool]


class Gates:
    """A task beside the queue's.

    Args:
        api: where the pods are.
        ledger: where their places are held.
        leads: whether this process may write.
    """

    def __init__(self, api: Api, ledger: Ledger, *, leads: Callable[[], bool]) -> None:
        self._api, self._ledger, self._leads = api, ledger, leads
        self._line: asyncio.Queue[str] = asyncio.Queue()
        self._wanted: dict[str, _Write] = {}
        """By UID, what is to be written and is not being."""
        self._busy: set[str] = set()

    def open(self, pod: objects.Pod, place: Allocation | None) -> None:
        """Have the gate opened soon; with a place: let in by the queue, to go there."""
        self._want(
            _Write(
                pod,
                place,
                lambda shown: gate.opening(shown, place),
                lambda shown: not shown.spec.scheduling_gates,
            )
        )

    def record(self, pod: objects.Pod, preemption: Preemption | None) -> None:
        """Have it written down who is stopped for it; None: nobody is any more."""
        told = None if preemption is None else gate.text_of(preemption)
        self._want(
            _Write(
                pod,
                None,
                lambda shown: gate.recording(shown, told),
                lambda shown: gate.recorded(shown) == told,
            )
        )

    async def run(self) -> None:
        """Write what is to be written, for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work())

    def _want(self, write: _Write) -> None:
        """What was wanted before of the same pod and not begun yet is so no more."""
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
        """Whether it is written."""
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
        """The pod as it is now; None: there is none of that UID, or none that can be read."""
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
        """Whether the place that is written is held, from now on for as long again."""
        if write.place is None:
            return True
        claim = self._ledger.claims.pods.get(write.pod.metadata.uid)
        if claim is None or claim.allocation != write.place:
            return False
        self._ledger.renew(claim, seconds=let_in.SECONDS)
        return True

    def _give_back(self, write: _Write) -> None:
        """Its gate is not open: nothing is held for it, and it waits again if it is there still."""
        claim = self._ledger.claims.pods.get(write.pod.metadata.uid)
        if write.place is not None and claim is not None and claim.allocation == write.place:
            self._ledger.release(claim)


def _asks_for_the_same(shown: objects.Pod, asked: objects.Pod) -> bool:
    """Whether nobody has narrowed its nodes down since: a gated pod may be."""
    specs = [pod.spec for pod in (shown, asked)]
    rules = [spec.rules if isinstance(spec, GatedPodSpec) else None for spec in specs]
    return msgspec.json.encode(rules[0]) == msgspec.json.encode(rules[1])
