# SPDX-License-Identifier: Apache-2.0
"""The claims of all pods and workers, from the API server's objects.

    pods ──────► bound, ended, gone  ┐
    GPUJobs ───► admitted, released  ├─► claims by key ─► `changed` has their keys
    GPUNodes ──► terminating holders ┘

Newer data of an object overwrites older data, so that a list after a restart restores what was
missed for objects that still exist. For other objects `last_seen` is the end: the time until which
this process, or its predecessor, is known to have seen all objects.

A pod counts as the worker that its labels name only where that worker's GPUs are the pod's own. Any
author can set labels, and two pods that claimed to be one worker would be counted once.
"""

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from gpupack_apiserver.accounts.claim import Claim, HeldGpu
from gpupack_apiserver.accounts.inventory import Inventory
from gpupack_apiserver.accounts.pod_times import bound_at, ended_at
from gpupack_apiserver.shown_job import ShownAttempt, ShownJob
from gpupack_crds import devices, names
from gpupack_crds.devices import DeviceShare
from gpupack_crds.errors import DevicesAnnotationInvalid
from gpupack_crds.kinds import GpuNode
from gpupack_crds.worker_pods import WorkerPod, pods_of, says_shared
from gpupack_kubeclient import objects
from gpupack_placement import WHOLE_GPU
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.ledger import claims as ledger_claims
from gpupack_scheduler.ledger.placed_job import PlacedJob
from gpupack_scheduler.ledger.workers import worker_of
from gpupack_scheduler.requests import pod_request, pod_resources
from gpupack_scheduler.requests.gpu_request import MILLI_PER_PERCENT

_FIRST_NODE = re.compile(r"[^ ,]+")
_KIND = re.compile("[A-Za-z][A-Za-z0-9]{0,62}")
_NAME = re.compile("[a-z0-9][-.a-z0-9]{0,252}")


class ClaimTracker:
    """Claims in memory.

    Args:
        inventory: the GPUs of the cluster.
        cohort_of: returns the present cohort of a namespace.
        observed: resources that other device plugins hand out.
        now: returns seconds since the epoch, by the API server's clock.
    """

    def __init__(
        self,
        inventory: Inventory,
        cohort_of: Callable[[str], str],
        observed: Collection[str],
        *,
        now: Callable[[], float],
    ) -> None:
        self._inventory, self._cohort_of, self._observed, self._now = (
            inventory,
            cohort_of,
            observed,
            now,
        )
        self.claims: dict[str, Claim] = {}
        self.changed: set[str] = set()
        """Keys of claims that changed since this set was last emptied."""
        self.settled: dict[str, int] = {}
        """Last attempt that is counted and forgotten, by UID of a GPUJob."""
        self.current_attempts: dict[str, int] = {}
        """Current attempt of each GPUJob that the API server has, by UID."""
        self.last_seen = now()
        self._by_pod: dict[str, str] = {}
        self._by_job: dict[str, set[str]] = {}
        self._terminating: dict[str, set[str]] = {}
        self._unresolved: set[str] = set()

    def restore(self, claims: Iterable[Claim], settled: dict[str, int], last_seen: float) -> None:
        """Restore what the previous process wrote."""
        self.settled, self.last_seen = dict(settled), last_seen
        for claim in claims:
            self._put(claim)
            if claim.lingers:
                self._terminating.setdefault(claim.node, set()).add(claim.pod)
        self.changed.clear()

    def forget(self, keys: Iterable[str]) -> None:
        """Forget claims that are over and of which no object exists."""
        for key in keys:
            claim = self.claims.pop(key)
            self._unlink(claim)
            self._unresolved.discard(key)
            self.changed.discard(key)
            if claim.job_uid in self.current_attempts:
                known = self.settled.get(claim.job_uid, 0)
                self.settled[claim.job_uid] = max(known, claim.attempt)
        gone = self.settled.keys() - self.current_attempts.keys() - self._by_job.keys()
        for uid in gone:
            del self.settled[uid]

    def list_forgettable(self, before: float) -> list[str]:
        """Return keys of claims that ended before this time and that no object can change."""
        return [key for key, claim in self.claims.items() if self._is_over(claim, before)]

    def update_pod(self, pod: objects.Pod) -> None:
        """Add or update a pod."""
        now, uid = self._now(), pod.metadata.uid
        bound = bound_at(pod, now)
        if bound is None:
            return
        before = self.claims.get(self._by_pod.get(uid, ""))
        if before is not None:
            ended = ended_at(pod, now)
            if before.ended is not None:
                ended = before.ended if ended is None else min(ended, before.ended)
            self._put(msgspec.structs.replace(before, ended=ended, pod_there=True))
            return
        held = self._held_gpus(pod)
        if not held:
            return
        self._add_or_join(
            Claim(
                key=f"pod/{uid}",
                namespace=pod.metadata.namespace,
                job=_owner_name(pod),
                cohort=self._cohort_of(pod.metadata.namespace),
                node=pod.spec.node_name,
                held=held,
                pod=uid,
                pod_there=True,
                bound=bound,
                ended=ended_at(pod, now),
            ),
            pod,
        )

    def remove_pod(self, uid: str, *, at: float | None = None) -> None:
        """Record that the API server no longer has the pod; its end is `at` unless it is known."""
        claim = self.claims.get(self._by_pod.get(uid, ""))
        if claim is None or not claim.pod_there:
            return
        ended = claim.ended
        if ended is None and not claim.lingers:
            ended = self._now() if at is None else at
        self._put(msgspec.structs.replace(claim, ended=ended, pod_there=False))

    def replace_pods(self, pods: Iterable[objects.Pod]) -> None:
        """Replace all pods by the complete list."""
        listed = set()
        for pod in pods:
            listed.add(pod.metadata.uid)
            self.update_pod(pod)
        for uid in [uid for uid in self._by_pod if uid not in listed]:
            self.remove_pod(uid, at=self.last_seen)

    def update_job(self, job: ShownJob) -> None:
        """Add or update a GPUJob."""
        uid, status = job.metadata.uid, job.status
        self.current_attempts[uid] = status.attempt
        done = self.settled.get(uid, 0)
        current = status.attempt
        if current > done and status.placement:
            self._add_placement(job)
        for attempt in status.attempts:
            if attempt.finished_at is not None and attempt.number > done:
                self._release(job, attempt)
        if not status.holds_placement:
            self._release_all(uid, current, at=self._now())

    def remove_job(self, uid: str, *, at: float | None = None) -> None:
        """Record that the API server no longer has the GPUJob; its pods keep what they hold."""
        if uid not in self.current_attempts and uid not in self._by_job:
            return
        self.current_attempts.pop(uid, None)
        self._release_all(uid, None, at=self._now() if at is None else at)

    def replace_jobs(self, jobs: Iterable[ShownJob]) -> None:
        """Replace all GPUJobs by the complete list."""
        listed = set()
        for job in jobs:
            listed.add(job.metadata.uid)
            self.update_job(job)
        known = self.current_attempts.keys() | self._by_job.keys()
        for uid in [uid for uid in known if uid not in listed]:
            self.remove_job(uid, at=self.last_seen)

    def update_gpus(self, node: str, gpus: GpuNode | None, *, at: float | None = None) -> None:
        """Update a GPUNode, or remove it (None); holders that are gone ended at `at`, or now."""
        owned = gpus is not None and gpus.status.mode == "owned"
        holders = gpus.status.holders if gpus is not None and owned else ()
        before, now = self._terminating.pop(node, set()), {each.uid for each in holders if each.uid}
        if now:
            self._terminating[node] = now
        for holder in holders:
            if holder.uid and holder.uid not in before:
                self._add_terminating(node, holder.uid, holder.namespace, holder.devices)
        for uid in before - now:
            self._end_terminating(uid, at=self._now() if at is None else at)

    def replace_gpus(self, nodes: Iterable[GpuNode]) -> None:
        """Replace all GPUNodes; on nodes that are not listed no terminating pod holds a GPU."""
        listed = {node.metadata.name: node for node in nodes}
        for name in self._terminating.keys() - listed.keys():
            self.update_gpus(name, None, at=self.last_seen)
        for name, node in listed.items():
            self.update_gpus(name, node, at=self.last_seen)

    def resolve_models(self) -> None:
        """Look up unknown models again after a change of the inventory."""
        for key in list(self._unresolved):
            claim = self.claims[key]
            held = self._inventory.fill_models(claim.node, claim.held)
            if held != claim.held:
                self._put(msgspec.structs.replace(claim, held=held))

    def open_claims(self) -> Iterator[Claim]:
        """Return the open claims."""
        return (claim for claim in self.claims.values() if claim.end is None)

    def _held_gpus(self, pod: objects.Pod) -> tuple[HeldGpu, ...]:
        """Return what a pod holds, as in the ledger: the annotation, or the kubelet's count."""
        node = pod.spec.node_name
        annotation = pod.metadata.annotations.get(names.DEVICES_ANNOTATION)
        try:
            if annotation is not None:
                return self._inventory.held(node, devices.decode_devices(annotation))
            if pod_request.requests_gpus(pod.spec, self._observed):
                tokens = pod_resources.device_tokens(pod.spec, self._observed)
                return self._inventory.unnamed(node, tokens)
        except (DevicesAnnotationInvalid, RequestInvalid):
            return ()
        return ()

    def _add_or_join(self, claim: Claim, pod: objects.Pod) -> None:
        """Add the pod's claim, or join it with the claim of its worker."""
        worker = worker_of(pod)
        if worker is None:
            self._put(claim)
            return
        key = worker_key(
            claim.namespace, worker.attempt.job_uid, worker.attempt.number, worker.index
        )
        named = msgspec.structs.replace(
            claim,
            key=key,
            job=worker.attempt.job,
            job_uid=worker.attempt.job_uid,
            attempt=worker.attempt.number,
        )
        known = self.claims.get(key)
        if known is None:
            self._put(named)
        elif known.matches(claim) and (not known.pod or known.ended is not None):
            self._by_pod.pop(known.pod, None)
            self._put(_with_pod(known, claim))
        else:
            self._put(claim)

    def _add_placement(self, job: ShownJob) -> None:
        """Count workers that start together, by pod; other workers' times come from their pods."""
        status, started = job.status, job.started_at
        if started is None:
            return
        for placed in pods_of(status, least=job.spec.least):
            if placed.index >= job.spec.least:
                continue
            key = worker_key(job.metadata.namespace, job.metadata.uid, status.attempt, placed.index)
            known = self.claims.get(key)
            if known is not None and known.admitted is not None:
                continue
            shares = ledger_claims.believed(placed.devices)
            held = (
                self._inventory.held(placed.node, shares)
                if shares
                else self._inventory.unnamed(placed.node, _multiply(job.tickets, placed))
            )
            claim = self._worker_claim(job, status.attempt, key, placed.node, held)
            claim = msgspec.structs.replace(claim, admitted=min(started.timestamp(), self._now()))
            if known is not None and known.matches(claim):
                claim = _with_pod(claim, known)
            elif known is not None:
                self._rename(known, f"pod/{known.pod}")
            self._put(claim)

    def _release(self, job: ShownJob, attempt: ShownAttempt) -> None:
        """Record the end of an attempt; count its unseen part from its entry."""
        assert attempt.last_ran_at is not None  # noqa: S101 - the caller has checked it
        uid, at = job.metadata.uid, min(attempt.last_ran_at.timestamp(), self._now())
        seen = self._attempt_claims(uid, attempt.number)
        known = {claim.key: claim for claim in seen if claim.pod or claim.admitted}
        unseen = job.spec.least - sum(_workers_of(job, attempt, claim) for claim in known.values())
        if unseen > 0 and attempt.started_at is not None and not any(c.admitted for c in seen):
            self._count_unseen(job, attempt, unseen, known)
        self._release_all(uid, attempt.number, at=at)

    def _count_unseen(
        self, job: ShownJob, attempt: ShownAttempt, workers: int, known: Collection[str]
    ) -> None:
        """Count unseen workers; only their request and the first node are known.

        `known`: keys of the workers that were seen.
        """
        assert attempt.started_at is not None  # noqa: S101 - the caller has checked it
        text = attempt.nodes if isinstance(attempt.nodes, str) else " ".join(attempt.nodes)
        first = _FIRST_NODE.search(text)
        node = first[0] if first else ""
        of, uid = job.metadata.namespace, job.metadata.uid
        held = self._requested_by_one(job, node) * workers
        if job.spec.roles:
            kinds = enumerate(itertools.islice(job.by_worker, job.spec.least))
            held = tuple(
                each
                for worker, kind in kinds
                if worker_key(of, uid, attempt.number, worker) not in known
                for each in self._requested_by_one(kind, node)
            )
        if held:
            key = worker_key(of, uid, attempt.number, "unseen")
            claim = self._worker_claim(job, attempt.number, key, node, held)
            started = min(attempt.started_at.timestamp(), self._now())
            self._put(msgspec.structs.replace(claim, admitted=started))

    def _requested_by_one(self, job: PlacedJob, node: str) -> tuple[HeldGpu, ...]:
        """Return the GPUs of one worker by its request."""
        if job.spec.gpus:
            resource = names.GPU if job.spec.mig else job.spec.resource_name
            return self._inventory.unnamed(node, {resource: job.spec.gpus})
        percent = (job.spec.share or {}).get("percent")
        if not isinstance(percent, int):
            return ()
        (whole,) = self._inventory.unnamed(node, {names.GPU: 1})
        milli = min(max(percent, 0) * MILLI_PER_PERCENT, WHOLE_GPU)
        return (msgspec.structs.replace(whole, milli=milli, percent=percent),)

    def _worker_claim(
        self, job: ShownJob, attempt: int, key: str, node: str, held: tuple[HeldGpu, ...]
    ) -> Claim:
        namespace = job.metadata.namespace
        return Claim(
            key=key,
            namespace=namespace,
            job=job.metadata.name,
            cohort=self._cohort_of(namespace),
            node=node,
            held=held,
            job_uid=job.metadata.uid,
            attempt=attempt,
        )

    def _release_all(self, uid: str, attempt: int | None, *, at: float) -> None:
        claims = (
            self._attempt_claims(uid, attempt) if attempt is not None else self._job_claims(uid)
        )
        for claim in claims:
            if claim.admitted is not None and claim.released is None:
                self._put(msgspec.structs.replace(claim, released=at))

    def _job_claims(self, uid: str) -> list[Claim]:
        return [self.claims[key] for key in self._by_job.get(uid, ())]

    def _attempt_claims(self, uid: str, number: int) -> list[Claim]:
        return [claim for claim in self._job_claims(uid) if claim.attempt == number]

    def _add_terminating(
        self, node: str, uid: str, namespace: str, held: tuple[DeviceShare, ...]
    ) -> None:
        claim = self.claims.get(self._by_pod.get(uid, ""))
        if claim is None:
            found = self._inventory.held(node, ledger_claims.believed(held))
            claim = Claim(
                key=f"pod/{uid}",
                namespace=namespace,
                job="",
                cohort=self._cohort_of(namespace),
                node=node,
                held=found,
                pod=uid,
                bound=self._now(),
            )
        if claim.node == node:
            self._put(msgspec.structs.replace(claim, lingers=True, gone=None))

    def _end_terminating(self, uid: str, *, at: float) -> None:
        claim = self.claims.get(self._by_pod.get(uid, ""))
        if claim is None or not claim.lingers:
            return
        ended = at if claim.ended is None else claim.ended
        self._put(msgspec.structs.replace(claim, lingers=False, ended=ended, gone=at))

    def _is_over(self, claim: Claim, before: float) -> bool:
        if claim.end is None or claim.end >= before or claim.pod_there:
            return False
        current = self.current_attempts.get(claim.job_uid)
        return current is None or claim.attempt < current

    def _put(self, claim: Claim) -> None:
        before = self.claims.get(claim.key)
        if before == claim:
            return
        self.claims[claim.key] = claim
        if claim.pod:
            self._by_pod[claim.pod] = claim.key
        if claim.job_uid:
            self._by_job.setdefault(claim.job_uid, set()).add(claim.key)
        if claim.is_resolved:
            self._unresolved.discard(claim.key)
        else:
            self._unresolved.add(claim.key)
        self.changed.add(claim.key)

    def _rename(self, claim: Claim, key: str) -> None:
        """Rename a claim that is not a worker: its labels are wrong, or its job has moved."""
        self._unlink(claim)
        self._unresolved.discard(claim.key)
        del self.claims[claim.key]
        self.changed.add(claim.key)
        self._put(msgspec.structs.replace(claim, key=key, job_uid="", attempt=0))

    def _unlink(self, claim: Claim) -> None:
        if self._by_pod.get(claim.pod) == claim.key:
            del self._by_pod[claim.pod]
        keys = self._by_job.get(claim.job_uid)
        if keys is not None:
            keys.discard(claim.key)
            if not keys:
                del self._by_job[claim.job_uid]


def _multiply(tokens: Mapping[str, int], pod: WorkerPod) -> dict[str, int]:
    """Multiply one worker's device tokens by the number of workers of a pod."""
    return {name: number * len(pod.workers) for name, number in tokens.items()}


def _workers_of(job: ShownJob, attempt: ShownAttempt, claim: Claim) -> int:
    """Return the number of workers in a pod, by its GPUs."""
    if not says_shared(attempt):
        return 1
    return max(len(claim.held) // (job.spec.gpus or 1), 1)


def worker_key(namespace: str, job_uid: str, attempt: int, worker: int | str) -> str:
    """Return the key of a worker's claim."""
    return f"worker/{namespace}/{job_uid}/{attempt}/{worker}"


def _with_pod(worker: Claim, pod: Claim) -> Claim:
    """Return the worker's claim with its pod's data; the start of an earlier pod remains."""
    bounds = [bound for bound in (worker.bound, pod.bound) if bound is not None]
    return msgspec.structs.replace(
        worker,
        pod=pod.pod,
        pod_there=pod.pod_there,
        lingers=pod.lingers,
        gone=pod.gone,
        bound=min(bounds, default=None),
        ended=pod.ended,
    )


def _owner_name(pod: objects.Pod) -> str:
    """Return kind and name of the pod's controller, or else the pod's own.

    The API server accepts any text of any length for both, and the result is kept for months.
    """
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    if owner is None or not (_KIND.fullmatch(owner.kind) and _NAME.fullmatch(owner.name)):
        return f"Pod/{pod.metadata.name}"
    return f"{owner.kind}/{owner.name}"
