# SPDX-License-Identifier: Apache-2.0
"""Preemptions from the decision until the preemptor runs or gives up.

    decided ─► answered ─► written in the preemptor's status ─► victims end ─► it runs
                 └ not written in time: over   └ read back from there after a restart

Attempts are named by UID and number, as in the queue: no user reads names of other namespaces.
"""

import dataclasses
import datetime as dt
import math
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from gpupack_crds.gpujob_status import Preemption, Victims
from gpupack_crds.placement import WorkerPlacement, by_node, by_worker
from gpupack_placement import Placement
from gpupack_queue import JobId, Preempt, PreemptionReason, Victim
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.claims import Allocation
from gpupack_scheduler.ledger.placed_job import PlacedPreemption
from gpupack_scheduler.requests.needs import Needs


@dataclasses.dataclass(slots=True)
class _Made:
    decision: Preempt
    since: float
    deadline: float
    """Time by which the preemption should be written; infinity: it is written."""
    gained: float | None = None
    """GPU-seconds gained, for a consolidation."""


class PreemptionRecords:
    """The preemptions in progress, by preemptor."""

    def __init__(self) -> None:
        self._made: dict[JobId, _Made] = {}
        self._over: dict[JobId, PlacedPreemption] = {}
        """Preemptions that are over, while the status of a pending job may still show them."""

    def __contains__(self, job: JobId) -> bool:
        return job in self._made

    def decided(
        self, decision: Preempt, now: float, *, hold_seconds: float, gained: float | None = None
    ) -> None:
        """Add a preemption that must be written; `gained`: GPU-seconds, for a consolidation."""
        self._made[decision.job] = _Made(decision, now, now + hold_seconds, gained)

    def found(self, decision: Preempt, now: float) -> None:
        """Add a preemption that the preemptor's status already shows."""
        self._made[decision.job] = _Made(decision, now, math.inf)

    def see(self, job: JobId, shown: PlacedPreemption) -> None:
        """Compare the preemptor's status: a shown preemption in progress is written."""
        made = self._made.get(job)
        if made is not None and _is_same(shown, to_status(made.decision, made.since)):
            made.deadline = math.inf

    def written(self) -> list[tuple[JobId, Preempt]]:
        """Return the preemptions whose victims must end, by preemptor."""
        return [
            (job, made.decision) for job, made in self._made.items() if made.deadline == math.inf
        ]

    def is_over(self, job: JobId, shown: PlacedPreemption) -> bool:
        """Tell whether the status shows a preemption that was given up, and no new one."""
        return self._over.get(job) == shown

    def over(self, job: JobId, shown: PlacedPreemption | None = None) -> None:
        """End a preemption; `shown`: what the preemptor's status still shows, or may show later."""
        made = self._made.pop(job, None)
        if shown is None and made is not None:
            builtins = msgspec.to_builtins(to_status(made.decision, made.since, made.gained))
            shown = msgspec.convert(builtins, PlacedPreemption)
        if shown is not None:
            self._over[job] = shown

    def forget(self, job: JobId) -> None:
        """Forget the preemption of a job that runs, or no longer waits."""
        self._made.pop(job, None)
        self._over.pop(job, None)

    def is_written(self, job: JobId) -> bool:
        """Tell whether the watch has shown the preemption."""
        made = self._made.get(job)
        return made is not None and made.deadline == math.inf

    def overdue(self, now: float) -> tuple[JobId, ...]:
        """Return the preemptors whose status should show the preemption by now and does not."""
        return tuple(job for job, made in self._made.items() if made.deadline <= now)

    def oldest(self) -> float | None:
        """Return when the oldest preemption in progress was decided; None if there is none."""
        return min((made.since for made in self._made.values()), default=None)

    def __len__(self) -> int:
        """Return the number of preemptions in progress."""
        return len(self._made)

    @property
    def unwritten(self) -> int:
        """Return the number of preemptions that are yet to be written."""
        return sum(made.deadline < math.inf for made in self._made.values())

    def preemption_of(self, job: JobId) -> Preemption | None:
        """Return the preemption for a preemptor, as its status has it; None if there is none."""
        made = self._made.get(job)
        return None if made is None else to_status(made.decision, made.since, made.gained)


def shares(placements: Iterable[Placement]) -> Iterable[WorkerPlacement]:
    """Return the place of each worker in the form of statuses."""
    return (
        WorkerPlacement(worker=index, node=each.node, devices=claims.shares(each))
        for index, each in enumerate(placements)
    )


def read(
    shown: PlacedPreemption, job: JobId, needs: Needs, tickets: dict[str, int]
) -> tuple[tuple[Victim, ...], tuple[Allocation, ...]]:
    """Return victims and places from a status; unknown values of a newer release are ignored."""
    reasons = set(PreemptionReason)
    victims = tuple(
        Victim(JobId(attempt), PreemptionReason(each.reason), 0.0)
        for each in shown.victims
        if each.reason in reasons
        for attempt in each.attempts
        if attempt != job
    )
    return victims, places(shown, tickets, needs)


def places(
    shown: PlacedPreemption, tickets: dict[str, int], needs: Needs
) -> tuple[Allocation, ...]:
    """Return the workers' places from a status; their needs are not written there."""
    return tuple(
        Allocation(
            claims.placement(placed.node, claims.believed(placed.devices), needs=needs),
            {} if placed.devices else tickets,
        )
        for placed in by_worker(shown.placement)
    )


def _is_same(shown: PlacedPreemption, made: Preemption) -> bool:
    ours = {each.reason: each.attempts for each in made.victims}
    return shown.since == made.since and ours == {e.reason: e.attempts for e in shown.victims}


def to_status(decision: Preempt, since: float, gained: float | None = None) -> Preemption:
    """Convert a preemption into its form in a status; `gained`: GPU-seconds, of a consolidation."""
    lost = None if gained is None else sum(victim.lost_gpu_seconds for victim in decision.victims)
    by_reason: dict[PreemptionReason, list[str]] = defaultdict(list)
    for victim in decision.victims:
        by_reason[victim.reason].append(victim.job)
    return Preemption(
        since=dt.datetime.fromtimestamp(since, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        victims=tuple(
            Victims(reason=reason.value, attempts=tuple(sorted(attempts)))
            for reason, attempts in sorted(by_reason.items())
        ),
        placement=by_node(shares(decision.placements)),
        lost_gpu_seconds=None if lost is None else round(lost),
        gained_gpu_seconds=None if gained is None else round(gained),
    )
