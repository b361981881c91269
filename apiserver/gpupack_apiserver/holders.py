# SPDX-License-Identifier: Apache-2.0
"""Holders of each GPU, by pods: those of the API server, and those whose processes remain.

On observed nodes the node's agent reports them, since the kubelet chose the GPUs there.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gpupack_apiserver.job_views import index_of
from gpupack_apiserver.pod_workers import PodWorkers
from gpupack_apiserver.shown_job import ShownJob
from gpupack_crds.devices import DeviceShare
from gpupack_crds.kinds import GpuNode
from gpupack_restapi.holders import HolderView
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.claims import PodClaim
from gpupack_scheduler.ledger.ledger import Ledger
from gpupack_scheduler.ledger.terminating import TerminatingHolder
from gpupack_scheduler.ledger.workers import WorkerKey

EXCLUSIVE: Final = "strict"
"""Isolation of a whole GPU or MIG slice, which is exclusive."""


class Hold(msgspec.Struct, frozen=True):
    """A hold before it is shown."""

    namespace: str
    pod: str
    uuid: str
    node: str
    job: str
    share: DeviceShare
    worker: int | None = None

    @property
    def cursor(self) -> str:
        """Its cursor in the order of all holds."""
        return f"{self.namespace}/{self.pod}/{self.uuid}"


def list_holds(ledger: Ledger, jobs: Mapping[tuple[str, str], ShownJob]) -> Iterator[Hold]:
    """Yield all holds, in no order."""
    workers = PodWorkers(jobs)
    for claim in ledger.claims.pods.values():
        yield from _with_workers(claim, workers)
    for node, uids in ledger.claims.lingering.items():
        for uid in uids:
            if (gone := ledger.claims.terminating_holder(node, uid)) is not None:
                yield from _held_by(gone)
    for gpus in ledger.gpus.items.values():
        if gpus.status.mode == "observed":
            yield from _reported_by(gpus)


def pod_holds(
    claim: PodClaim, ledger: Ledger, jobs: Mapping[tuple[str, str], ShownJob]
) -> Iterator[Hold]:
    """Yield the holds of one pod; on an observed node its agent reports them."""
    yield from _with_workers(claim, PodWorkers(jobs))
    pod = (claim.namespace, claim.name)
    gpus = ledger.gpus.items.get(claim.placement.node)
    if gpus is not None and gpus.status.mode == "observed":
        yield from (each for each in _reported_by(gpus) if (each.namespace, each.pod) == pod)


def _with_workers(claim: PodClaim, workers: PodWorkers) -> Iterator[Hold]:
    for hold in _held_by(claim):
        yield _with_worker(hold, claim.worker, workers) if claim.worker else hold


def _with_worker(hold: Hold, pod: WorkerKey, workers: PodWorkers) -> Hold:
    worker = workers.worker(pod, hold.share)
    return msgspec.structs.replace(hold, job=pod.attempt.job, worker=worker)


def _held_by(pod: PodClaim | TerminatingHolder) -> Iterator[Hold]:
    for share in claims.shares(pod.placement):
        yield Hold(pod.namespace, pod.name, share.uuid, pod.placement.node, "", share)


def _reported_by(gpus: GpuNode) -> Iterator[Hold]:
    for holder in gpus.status.holders:
        for share in claims.believed(holder.devices):
            yield Hold(holder.namespace, holder.name, share.uuid, gpus.metadata.name, "", share)


def holder_view(hold: Hold, ledger: Ledger) -> HolderView:
    """Return a hold in the form for callers."""
    share = hold.share
    return HolderView(
        namespace=hold.namespace,
        pod=hold.pod,
        job=hold.job,
        worker=hold.worker,
        node=hold.node,
        uuid=hold.uuid,
        index=index_of(hold.uuid, hold.node, ledger.cluster),
        percent=share.percent,
        memory_mib=share.memory_mib,
        isolation=EXCLUSIVE if share.whole else share.isolation,
    )
