# SPDX-License-Identifier: Apache-2.0
"""The remedies for a wait: what would let the job start, by the reason for which it waits.

They are not certain: a remedy names what is in the way now, and other obstacles may be behind that.
Tenants that borrow are named. The surface that shows the answer decides which names its reader may
see.
"""

import dataclasses
from collections.abc import Iterable
from math import inf
from typing import Final

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.cluster import Cluster
from gpupack_placement.reasons import Reason, Refusal, count_text
from gpupack_queue.charge import ModelKey, Models, min_charge, permitted_models
from gpupack_queue.explain.reasons import Borrowed, Wait, WaitReason, gpus_text
from gpupack_queue.job import Job
from gpupack_queue.running.bounds import free_milli
from gpupack_queue.start import Start, WhenReleased
from gpupack_queue.state.queue_state import State


@dataclasses.dataclass(frozen=True, slots=True)
class Remedies:
    """What would help; `texts` name no tenants; `borrowed`: what other tenants could give back."""

    texts: tuple[str, ...] = ()
    borrowed: tuple[Borrowed, ...] = ()


_DEADLINES_HELP: Final = (
    "a job or pod that holds what it needs ends; with activeDeadlineSeconds on such jobs the start "
    "time is known"
)


def find_remedies(state: State, cluster: Cluster, job: Job, wait: Wait, now: float) -> Remedies:
    """Return what helps a job that waits for this reason; nothing changes."""
    match wait.reason:
        case WaitReason.UNSATISFIABLE:
            return Remedies(tuple(_for_unsatisfiable(job, wait)))
        case WaitReason.DOES_NOT_FIT if wait.refusal is not None:
            found_for_holders = _for_holders(state, cluster, job, wait.start)
            return Remedies((*_for_refusal(job, wait.refusal), *found_for_holders))
        case WaitReason.QUOTA_EXCEEDED:
            found = _borrowed(state, cluster, job)
            return Remedies(tuple(_for_quota(state, cluster, job)), tuple(found))
        case WaitReason.BORROWING_LIMIT_EXCEEDED:
            return Remedies(tuple(_for_quota(state, cluster, job)))
        case WaitReason.RESERVED:
            return Remedies(tuple(_for_reservation(state, wait, now)))
        case _:
            return Remedies()


def _for_unsatisfiable(job: Job, wait: Wait) -> Iterable[str]:
    if wait.refusal is None:
        missing, most = min_charge(job.gang) - wait.left, gpus_text(wait.left)
        if missing > 0:
            less = gpus_text(missing)
            yield f"its quota would allow it with {less} less: it may use at most {most}"
        yield f"a larger GPUQuota of its namespace allows {gpus_text(min_charge(job.gang))}"
        return
    yield from _for_refusal(job, wait.refusal)
    if wait.refusal.reason is Reason.MODEL_MISMATCH:
        yield (
            f"nodes with GPUs of model {' or '.join(wait.refusal.request.models)} are added, or "
            "gpuModels names a model that the cluster has"
        )
    else:
        yield "nodes that fit it are added, or it requests what a node of the cluster has"


def _for_refusal(job: Job, refusal: Refusal) -> Iterable[str]:
    if refusal.nearest is not None:
        yield refusal.nearest.text
    role = job.gang.role(refusal.role) or job.gang.roles[0]
    workers = role.workers
    if 0 < refusal.placed < workers:
        less = count_text(workers - refusal.placed, "worker")
        fit = "could ever fit" if refusal.is_of_empty_cluster else "fit now"
        which = f"its role {role.name}" if refusal.role else "it"
        yield f"{which} would fit with {less} less: {refusal.placed} of {workers} {fit}"


def _for_holders(state: State, cluster: Cluster, job: Job, start: Start) -> Iterable[str]:
    """Yield what helps a job that waits for jobs or pods without a known end."""
    if not isinstance(start, WhenReleased) or start.preempting or not start.holders:
        return
    yield _DEADLINES_HELP
    has_gpus = any(request.gpus for request in job.gang.requests)
    if has_gpus and free_milli(cluster, job.gang) >= min_charge(job.gang):
        is_on = state.quota.rules.consolidation.any
        needs = "jobs are movable" if is_on else "queue.consolidation is on and jobs are movable"
        yield f"enough GPUs are free on several nodes: consolidation helps if {needs}"
    if state.quota.rules.preemption.reclaim and job.preempts:
        yield "with a larger nominal quota of its namespace it preempts jobs that borrow"


def _for_quota(state: State, cluster: Cluster, job: Job) -> Iterable[str]:
    """Yield what helps with the key of which most is left."""
    models, requested = state.quota.scarce_models(cluster, job.tenant, job.gang)
    key, left = _most_left(state, cluster, job, models)
    if WHOLE_GPU <= left < requested:
        less = gpus_text(requested - left, key)
        yield f"its quota would allow it with {less} less: it has {gpus_text(left)} left"


def _most_left(state: State, cluster: Cluster, job: Job, models: Models) -> tuple[ModelKey, float]:
    quota = state.quota
    leaf, keys = quota.tree.tenant(job.tenant), quota.keys.allowed(cluster, models)
    return max(((key, quota.usage.available(leaf, key)) for key in keys), key=lambda of: of[1])


def _borrowed(state: State, cluster: Cluster, job: Job) -> Iterable[Borrowed]:
    """Return what other tenants borrow of the keys that the job may use, the largest first."""
    quota = state.quota
    keys = quota.keys.allowed(cluster, permitted_models(job.gang))
    found = [
        Borrowed(tenant, milli, key)
        for tenant in state.running.usage_by_tenant()
        if tenant != job.tenant
        for key in keys
        if (milli := quota.usage.borrowed(quota.tree.tenant(tenant), key)) > 0
    ]
    return sorted(found, key=lambda of: (-of.milli, of.tenant, of.key))


def _for_reservation(state: State, wait: Wait, now: float) -> Iterable[str]:
    reservation = next(
        (each for each in state.backfill_reservations if each.job.id == wait.blocked_by), None
    )
    seconds = inf if reservation is None else reservation.start_at - now
    if 1 <= seconds < inf:
        yield (
            f"with activeDeadlineSeconds of {int(seconds)} or less it ends before the "
            "reservation starts and can be backfilled"
        )
