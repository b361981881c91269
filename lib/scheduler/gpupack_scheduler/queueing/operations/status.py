# SPDX-License-Identifier: Apache-2.0
"""Operations as the API has them: in the status of a GPUJob, or in the annotation of a pod.

Attempts are named by UID and number, as in the queue: no user reads names of other namespaces. A
move has the form of a preemption whose victim is the job itself.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gpupack_crds.gpujob_status import Preemption, Victims
from gpupack_crds.placement import WorkerPlacement, by_node, by_worker
from gpupack_crds.times import format_seconds
from gpupack_placement import Placement
from gpupack_queue import JobId, Preempt, PreemptionReason, Queue, Victim
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.claims import Allocation
from gpupack_scheduler.ledger.jobs import ShownJob
from gpupack_scheduler.ledger.placed_job import PlacedPreemption
from gpupack_scheduler.queueing.pending.request import job_id
from gpupack_scheduler.requests.needs import Needs

_MOVES: Final = {
    PreemptionReason.MAINTENANCE,
    PreemptionReason.CONSOLIDATION,
    PreemptionReason.REVISED,
}


def to_status(decision: Preempt, since: float, gained: float | None = None) -> Preemption:
    """Convert a preemption into its form in a status; `gained`: GPU-seconds, of a consolidation."""
    lost = None if gained is None else sum(victim.lost_gpu_seconds for victim in decision.victims)
    by_reason: dict[PreemptionReason, list[str]] = defaultdict(list)
    for victim in decision.victims:
        by_reason[victim.reason].append(victim.job)
    return Preemption(
        since=format_seconds(since),
        victims=tuple(
            Victims(reason=reason.value, attempts=tuple(sorted(attempts)))
            for reason, attempts in sorted(by_reason.items())
        ),
        placement=by_node(_shares(decision.placements)),
        lost_gpu_seconds=None if lost is None else round(lost),
        gained_gpu_seconds=None if gained is None else round(gained),
    )


def as_shown(written: Preemption) -> PlacedPreemption:
    """Return what the watch shows of a preemption once it is written."""
    return msgspec.convert(msgspec.to_builtins(written), PlacedPreemption)


def shows(shown: PlacedPreemption, written: Preemption) -> bool:
    """Tell whether the watch shows this preemption; its places may be those of a later write."""
    ours = {each.reason: each.attempts for each in written.victims}
    return shown.since == written.since and ours == {e.reason: e.attempts for e in shown.victims}


def decided_at(shown: PlacedPreemption, now: float) -> float:
    """Return when a shown preemption was decided, in seconds since the epoch.

    It is now if the time cannot be read, and never later than now.
    """
    try:
        at = dt.datetime.fromisoformat(shown.since)
    except ValueError:
        return now
    return min(at.timestamp(), now) if at.tzinfo else now


def victims(shown: PlacedPreemption, job: JobId) -> tuple[Victim, ...]:
    """Return the victims of a shown preemption; unknown reasons of a newer release are ignored."""
    reasons = set(PreemptionReason)
    return tuple(
        Victim(JobId(attempt), PreemptionReason(each.reason), 0.0)
        for each in shown.victims
        if each.reason in reasons
        for attempt in each.attempts
        if attempt != job
    )


def places(
    shown: PlacedPreemption, tickets: Iterable[dict[str, int]], needs: Iterable[Needs]
) -> tuple[Allocation, ...]:
    """Return the workers' places of a shown preemption; `tickets`, `needs`: of each of them."""
    return tuple(
        Allocation(
            claims.placement(placed.node, claims.believed(placed.devices), needs=of_worker),
            {} if placed.devices else tokens,
        )
        for placed, tokens, of_worker in zip(
            by_worker(shown.placement), tickets, needs, strict=False
        )
    )


def own_move(shown: ShownJob) -> PlacedPreemption | None:
    """Return the move in a job's status, if it is one of the last ended attempt."""
    written = shown.preemption
    if written is None or not shown.may_wait or not shown.has_ended:
        return None
    named = (
        each
        for each in written.victims
        if each.reason in _MOVES and job_id(shown.attempt) in each.attempts
    )
    return written if next(named, None) else None


def move_reason(written: PlacedPreemption) -> PreemptionReason:
    """Return the reason of a move in a status."""
    return next(PreemptionReason(each.reason) for each in written.victims if each.reason in _MOVES)


def names_job(written: PlacedPreemption, uid: str) -> bool:
    """Tell whether an attempt of the job itself is a victim: it is the job's own move."""
    return any(attempt.partition("/")[0] == uid for attempt in _attempts(written))


def is_moved(victim: Victim) -> bool:
    """Tell whether a victim is moved by a consolidation."""
    return victim.reason is PreemptionReason.CONSOLIDATION


def leaves(victim: Victim, queue: Queue) -> bool:
    """Tell whether a victim will leave its GPUs.

    It does not if it was to be moved by a consolidation and its new place was not written before
    this process started.
    """
    if not is_moved(victim) or victim.job not in queue.state.running:
        return True
    return victim.job in queue.state.reserved


def _attempts(written: PlacedPreemption) -> Iterator[str]:
    return (attempt for each in written.victims for attempt in each.attempts)


def _shares(placements: Iterable[Placement]) -> Iterable[WorkerPlacement]:
    """Return the place of each worker in the form of statuses."""
    return (
        WorkerPlacement(worker=index, node=each.node, devices=claims.shares(each))
        for index, each in enumerate(placements)
    )
