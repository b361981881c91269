# SPDX-License-Identifier: Apache-2.0
"""Admissions: places held for gangs, extra workers and pods until the API shows them.

    gang           the operator is notified, calls for its plan and writes it into the status
    extra worker   with the gang's start its place is in the gang's plan; later the operator gets an
                   order that the gang can grow, and writes the place before anything runs there
    pod            its place is written into the pod when its gate opens (admitted_pods.py)

Places that are not written in time are settled like any plan, and the queue may admit the job
again.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from gpupack_placement import Placement
from gpupack_queue import Admit, JobId
from gpupack_scheduler.ledger.claims import State
from gpupack_scheduler.ledger.workers import AttemptKey, WorkerKey
from gpupack_scheduler.queueing.notices import OpenGate
from gpupack_scheduler.queueing.observed_queue import ObservedQueue
from gpupack_scheduler.queueing.operations.operation import (
    MAX_UNWRITTEN,
    Event,
    Operation,
    Operations,
)
from gpupack_scheduler.queueing.pending.request import (
    GatedPodRequest,
    PodGroupRequest,
    extra_worker,
    job_id,
)
from gpupack_scheduler.requests.pod_groups import GangKey, Membership, age


@dataclasses.dataclass(frozen=True, slots=True)
class HeldPlaces:
    """The places that an attempt was admitted to; `extra`: the worker by which it grows."""

    attempt: AttemptKey
    extra: WorkerKey | None = None


class Admissions:
    """The admissions of one observed queue by its owner."""

    def __init__(self, observed: ObservedQueue) -> None:
        self._observed, self._ledger = observed, observed.ledger
        self._hold_seconds = observed.decisions.plan_hold_seconds
        self._operations: Operations[HeldPlaces] = Operations()

    def advance(self) -> None:
        """Apply what became of places: they are written, or not held any more."""
        for job, operation in self._operations.items():
            states = self._states(operation.decision)
            if State.PLANNED not in states:
                self._operations.apply(job, Event.STARTED if states else Event.EXPIRED)

    def admit(self, admit: Admit, *, asking: AttemptKey | None) -> bool:
        """Hold the places of a job; return False if enough are yet to be written.

        `asking` is not notified: it is answered.
        """
        if extra := extra_worker(admit.job):
            return self._admit_extra_worker(admit, *extra)
        ask = self._observed.waiting[admit.job].ask
        if isinstance(ask, GatedPodRequest):
            return self._admit_pod(ask, admit.placements[0])
        if isinstance(ask, PodGroupRequest):
            return self._admit_group(ask, admit.placements)
        attempt, now = ask.attempt, self._observed.now()
        if attempt != asking and self._is_full:
            return False
        self._ledger.hold_plan(
            attempt, admit.placements, seconds=self._hold_seconds, version=ask.version
        )
        self._operations.put(admit.job, Operation.decided(HeldPlaces(attempt), now))
        self._observed.submissions.start(admit.job)
        self._observed.running.add_gang(ask.job, attempt, now)
        if attempt != asking:
            self._observed.notices.new_answer(attempt)
        return True

    def growing(self) -> tuple[str, ...]:
        """Return running attempts with places that are not written yet, as UID/NUMBER."""
        return tuple(sorted(job_id(each) for each in self._unwritten() if self._grows(each)))

    def clear(self) -> None:
        """Forget all admissions, because the queue is rebuilt."""
        self._operations.clear()

    @property
    def _is_full(self) -> bool:
        return len(self._unwritten()) >= MAX_UNWRITTEN

    def _unwritten(self) -> set[AttemptKey]:
        return {operation.decision.attempt for _, operation in self._operations.items()}

    def _states(self, held: HeldPlaces) -> set[State]:
        """Return the states of the places; of a gang, those of all its workers."""
        if held.extra is None:
            return {claim.state for claim in self._ledger.plan_of(held.attempt)}
        claim = self._ledger.claims.workers.get(held.extra)
        return set() if claim is None else {claim.state}

    def _grows(self, attempt: AttemptKey) -> bool:
        states = {claim.state for claim in self._ledger.plan_of(attempt)}
        return states == {State.PLANNED, State.WRITTEN}

    def _admit_extra_worker(self, admit: Admit, gang: JobId, number: int) -> bool:
        running, now = self._observed.running, self._observed.now()
        attempt = running.attempt_of(gang)
        if attempt is None or (self._is_full and attempt not in self._unwritten()):
            return False
        worker = WorkerKey(attempt, running.least(attempt) - 1 + number)
        self._ledger.hold_extra_worker(worker, admit.placements[0], seconds=self._hold_seconds)
        self._operations.put(admit.job, Operation.decided(HeldPlaces(attempt, worker), now))
        running.add_extra_worker(worker, now)
        return True

    def _admit_pod(self, waiting: GatedPodRequest, place: Placement) -> bool:
        observed = self._observed
        if not observed.admitted_pods.free_slots():
            return False
        now, joins = observed.now(), waiting.joins
        member = _membership(joins, now, [waiting]) if joins else None
        claim = observed.admitted_pods.admit(waiting, place, member)
        observed.notices.add(OpenGate(waiting.pod, claim.allocation, member))
        observed.submissions.start(waiting.job.id)
        if joins is None:
            observed.running.add_pod(waiting.job, claim, now)
        else:
            observed.running.add_members(waiting.job, joins, now)
        return True

    def _admit_group(self, waiting: PodGroupRequest, places: Iterable[Placement]) -> bool:
        """Hold the places of all members, whose gates are to open; return False if they cannot."""
        observed, now, number = self._observed, self._observed.now(), len(waiting.members)
        if not observed.admitted_pods.may_admit_group(waiting.namespace, number):
            return False
        gang = waiting.joins or waiting.waits_as
        member = _membership(gang, now, waiting.members)
        for each, place in zip(waiting.members, places, strict=True):
            claim = observed.admitted_pods.admit(each, place, member)
            observed.notices.add(OpenGate(each.pod, claim.allocation, member))
        observed.submissions.start(waiting.job.id)
        observed.running.add_members(waiting.job, gang, now)
        return True


def _membership(gang: GangKey, now: float, members: Sequence[GatedPodRequest]) -> Membership:
    """Return what is written into each member that one decision admits."""
    _, source, name = gang.group
    last = max((each.pod.metadata for each in members), key=age)
    return Membership(
        source=source,
        name=name,
        gang=gang.gang,
        at=math.floor(now),
        members=len(members),
        last_created=age(last)[0],
        last_name=last.name,
    )
