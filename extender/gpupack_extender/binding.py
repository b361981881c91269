# SPDX-License-Identifier: Apache-2.0
"""Verb bind: one Binding, with node and devices in one write.

    Reserve ─► Gathering ─► POST Binding ─┬─ answered: written                   ─► landed
                                          ├─ refused, pod gone or bound elsewhere ─► not landed
                                          └─ no answer, 5xx, Conflict: read it    ─► by what it says

A lost reply is a question, not a failure. A pod read as unbound after a lost reply proves nothing,
since the write may still be under way: it is sent again (the pod's UID is its precondition, so it
cannot succeed twice) until the outcome is known. If it stays unknown, the place stays held and
`unconfirmed_writes` continues to ask. Only this process knows a standalone pod's place: once the
Lease is lost nothing more is sent for it, as a successor may have given the place away.

Each bind runs as a task of its own: kube-scheduler gives up waiting after httpTimeout, but a write
cannot be given up half-way. A second call for the same pod waits for the same task. Before the
write, while a gang gathers or MAX_WRITES others are written, a task without a caller ends.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable

from gpupack_crds import indices, names
from gpupack_crds.devices import encode_devices
from gpupack_crds.gang_memory import gang_name
from gpupack_extender.gathering import GangBarrier
from gpupack_extender.reserving import Reserve
from gpupack_extender.wire import BindingArgs
from gpupack_kubeclient import errors, objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import PODS
from gpupack_scheduler.errors import BindRefused
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.claims import PodClaim, State
from gpupack_scheduler.ledger.ledger import Ledger, Outcome
from gpupack_scheduler.requests import pod_request

log = logging.getLogger(__name__)

TRIES = 3
PAUSE_SECONDS = 0.2
FIRST_SERVER_ERROR = 500

MAX_WRITES = 32
"""Limit of concurrent Bindings: a gang of a thousand leaves connections for other calls."""


@dataclasses.dataclass(slots=True)
class _Call:
    """Bind of one pod, and how many calls wait for it."""

    task: asyncio.Task[None] | None = None
    callers: int = 0

    @property
    def is_wanted(self) -> bool:
        return self.callers > 0


class Binder:
    """Handler of the verb bind."""

    def __init__(
        self, api: Api, ledger: Ledger, reserve: Reserve, *, leads: Callable[[], bool]
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._reserve = reserve
        self._leads = leads
        self._running: dict[str, _Call] = {}
        self._writes = asyncio.Semaphore(MAX_WRITES)
        self.gathering = GangBarrier(ledger)

    async def bind(self, call: BindingArgs) -> None:
        """Bind the pod; a return means that it is bound.

        Raises:
            BindRefused: the ledger or the API server refuses; the place is free again.
            KubeError: it is not known whether the pod is bound; the place stays held.
        """
        running = self._running.setdefault(call.pod_uid, _Call())
        running.callers += 1
        if running.task is None:
            running.task = asyncio.create_task(self._bind(call, running))
            running.task.add_done_callback(lambda done: self._finished(call, done))
        try:
            await asyncio.shield(running.task)
        finally:
            running.callers -= 1

    def _finished(self, call: BindingArgs, task: asyncio.Task[None]) -> None:
        """Forget the task; its error is retrieved here too, as no caller may be left."""
        del self._running[call.pod_uid]
        if not task.cancelled() and (error := task.exception()):
            log.warning("binding %s/%s: %s", call.pod_namespace, call.pod_name, error)

    async def _bind(self, call: BindingArgs, running: _Call) -> None:
        ask = self._ledger.pods.waiting(call.pod_uid)
        if ask is None:
            pod = await self._read(call)
            if pod is None:
                raise BindRefused(f"there is no pod of UID {call.pod_uid}")
            if pod.spec.node_name == call.node:
                return
            decisions = self._reserve.decisions
            ask = pod_request.of_watch(
                pod, decisions.observed_resources, max_priority=decisions.max_priority
            )
        claim = self._reserve(ask, call.node)
        if claim.state in {State.LANDED, State.BOUND}:
            return
        outcome, error = Outcome.UNKNOWN, ""
        try:
            if not claim.may_have_landed:
                await self.gathering.wait(claim, lambda: running.is_wanted)
            async with self._writes:
                self._require_wanted(claim, running)
                outcome, error = await self._settle(call, claim)
        except BindRefused:
            outcome = Outcome.NOT_LANDED
            raise
        finally:
            self._ledger.end_bind(call.pod_uid, outcome)
        if outcome in {Outcome.GONE, Outcome.NOT_LANDED}:
            raise BindRefused(error)
        if outcome is Outcome.UNKNOWN:
            raise errors.Unreachable(f"it is not known whether the pod is bound: {error}")

    def _require_wanted(self, claim: PodClaim, running: _Call) -> None:
        """Check again: other writes may have delayed this one for long.

        Raises:
            BindRefused: pod, place or caller is gone; no Binding was sent.
        """
        if claim.may_have_landed:
            return
        if claim.uid not in self._ledger.claims.pods:
            raise BindRefused(f"pod {claim.name} is gone")
        if claim.worker is not None:
            self.gathering.require_place(claim.worker, lambda: running.is_wanted)
        elif not running.is_wanted:
            raise BindRefused("kube-scheduler does not wait for the binding any more")

    async def _settle(self, call: BindingArgs, claim: PodClaim) -> tuple[Outcome, str]:
        """Send the Binding until its outcome is known, or for a few tries."""
        may_have_landed, error = claim.may_have_landed, ""
        for attempt in range(TRIES):
            await asyncio.sleep(PAUSE_SECONDS * attempt)
            if claim.worker is None and not self._leads():
                unsent = Outcome.UNKNOWN if may_have_landed else Outcome.NOT_LANDED
                return unsent, error or "the Lease was lost before the binding was sent"
            try:
                await self._write(call, claim)
            except errors.KubeError as failure:
                may_have_landed = may_have_landed or not _was_refused(failure)
                error = str(failure)
            else:
                return Outcome.LANDED, ""
            outcome = await self._ask(call, claim, may_have_landed=may_have_landed)
            if outcome is not Outcome.UNKNOWN:
                return outcome, error
        return Outcome.UNKNOWN, error

    async def _write(self, call: BindingArgs, claim: PodClaim) -> None:
        path = PODS.path(call.pod_name, namespace=call.pod_namespace, subresource="binding")
        written = binding(call, claim, shared_with(self._ledger, claim))
        await self._api.post(path, written, objects.Object)

    async def _ask(self, call: BindingArgs, claim: PodClaim, *, may_have_landed: bool) -> Outcome:
        try:
            pod = await self._read(call)
        except errors.KubeError as error:
            log.warning("reading pod %s/%s: %s", call.pod_namespace, call.pod_name, error)
            return Outcome.UNKNOWN
        return judge(pod, claim, may_have_landed=may_have_landed)

    async def _read(self, call: BindingArgs) -> objects.Pod | None:
        return await read_pod(
            self._api, namespace=call.pod_namespace, name=call.pod_name, uid=call.pod_uid
        )


def binding(call: BindingArgs, claim: PodClaim, shared: dict[str, str]) -> objects.Json:
    """Return the Binding with the node, the devices and what the pod shares with its gang.

    The API server merges the annotations into the pod in the same write.
    """
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": call.pod_name,
            "namespace": call.pod_namespace,
            "uid": call.pod_uid,
            "annotations": annotations(claim) | shared,
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": claim.placement.node},
    }


def annotations(claim: PodClaim) -> dict[str, str]:
    """Return the devices' annotation.

    It is empty on a node whose GPUs another device plugin hands out.
    """
    held = claims.shares(claim.placement)
    return {names.DEVICES_ANNOTATION: encode_devices(held)} if held else {}


def shared_with(ledger: Ledger, claim: PodClaim) -> dict[str, str]:
    """Return annotations about what the pod's containers share, and what the gang's pods share.

    They follow the placement that the GPUJob's status shows. What the pod itself claims does not
    count.
    """
    if claim.worker is None:
        return {}
    found = {}
    workers = [each.worker.index for each in ledger.claims.in_pod(claim.worker)]
    if len(workers) > 1:
        found[names.WORKERS_ANNOTATION] = indices.written(workers)
    attempt = claim.worker.attempt
    shown = ledger.jobs.shown(attempt.job_uid)
    if shown is not None and shown.attempt == attempt and shown.has_gang_memory:
        gang = gang_name(attempt.job_uid, attempt=attempt.number)
        found[names.GANG_MEMORY_ANNOTATION] = gang
    return found


def judge(pod: objects.Pod | None, claim: PodClaim, *, may_have_landed: bool) -> Outcome:
    """Return the outcome that a pod, read after the write, shows.

    Args:
        pod: the pod of the claim's UID; None if there is none.
        claim: what was written.
        may_have_landed: whether a write was sent and not refused, so that it may still arrive.
    """
    if pod is None:
        return Outcome.GONE
    if pod.spec.node_name:
        ours = annotations(claim).items() <= pod.metadata.annotations.items()
        is_here = pod.spec.node_name == claim.placement.node
        return Outcome.LANDED if ours and is_here else Outcome.NOT_LANDED
    if pod.metadata.deletion_timestamp is not None:
        return Outcome.NOT_LANDED
    return Outcome.UNKNOWN if may_have_landed else Outcome.NOT_LANDED


async def read_pod(api: Api, *, namespace: str, name: str, uid: str) -> objects.Pod | None:
    """Read the pod of this UID; return None if it is gone or another has its name."""
    try:
        pod = await api.get(PODS, name, namespace=namespace)
    except errors.NotFound:
        return None
    return pod if pod.metadata.uid == uid else None


def _was_refused(error: errors.KubeError) -> bool:
    """Tell whether the server refused. A 5xx can be a timeout after the write succeeded."""
    return isinstance(error, errors.Refused) and error.status < FIRST_SERVER_ERROR
