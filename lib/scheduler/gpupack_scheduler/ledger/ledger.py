# SPDX-License-Identifier: Apache-2.0
"""The effects of calls on claims: plans, assumptions, binds. The package has a diagram."""

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterable
from typing import Final

from gpupack_crds.acceptance import Acceptance
from gpupack_placement import Cluster, DemandLearner, Placement
from gpupack_scheduler.ledger.arrivals import Arrivals
from gpupack_scheduler.ledger.changes import Changes
from gpupack_scheduler.ledger.claim_table import ClaimTable
from gpupack_scheduler.ledger.claims import Allocation, PodClaim, State, WorkerClaim
from gpupack_scheduler.ledger.jobs import Jobs
from gpupack_scheduler.ledger.nodes import NodeStores
from gpupack_scheduler.ledger.pods import Pods
from gpupack_scheduler.ledger.workers import AttemptKey, WorkerKey
from gpupack_scheduler.requests.pod_request import PodRequest

Clock = Callable[[], float]
"""A clock of monotonic seconds."""

RETRY_SECONDS: Final = 5.0
"""Delay until an overdue plan is read again, if the last read did not end it."""

UNREPORTED: Final = "untold"
"""A place's version until a component that can write the place learns of it."""

TIE_SEED: Final = 0
"""Seed of the order that breaks ties between nodes, together with their names. The order is the
same after every start, in whatever order the API lists nodes, and in gpupack-simulator."""


class Outcome(enum.Enum):
    """The result of a write: of a Binding, of a plan in a GPUJob's status, or of an opened gate."""

    LANDED = enum.auto()
    NOT_LANDED = enum.auto()
    """It is known that it was not written and never will be."""
    GONE = enum.auto()
    """The object is gone, whether it was written or not. The watch may not have shown that yet."""
    UNKNOWN = enum.auto()


class Ledger:
    """The record of all claims on GPUs and of how long they are held.

    Attributes:
        cluster: the free resources, as arrays; read-only for callers.
        claims: the claims.
        nodes, gpus, jobs, pods: stores for reflectors.
        maintained: GPUNodes of which something is in maintenance, by name; read-only.
        failed: GPUs that failed, by node, and why; read-only.
        rejected: nodes that get no work because of their inventory, and why; read-only.
        learner: the requests of pods so far.
        changes: what has changed since the changes were last taken.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        observed_resources: Collection[str] = (),
        acceptance: Acceptance | None = None,
        max_priority: int = 0,
        tie_seed: int | None = TIE_SEED,
    ) -> None:
        self._clock = clock
        self.cluster = Cluster(tie_seed=tie_seed)
        self.changes = Changes()
        self.claims = ClaimTable(self.cluster, self.changes)
        self._stores = stores = NodeStores(
            self.cluster, self.claims, observed_resources, acceptance, clock=clock
        )
        self.nodes, self.gpus = stores.nodes, stores.gpus
        self.maintained, self.failed = stores.maintained, stores.failed
        self.rejected = stores.rejected
        self.jobs = Jobs(self.claims)
        self.learner = DemandLearner()
        arrivals = Arrivals(self.learner)
        self.pods = Pods(
            self.claims,
            arrivals,
            observed_resources,
            max_priority=max_priority,
            clock=clock,
            listed=stores.retry,
        )

    def expire(self) -> None:
        """End assumptions whose deadline has passed. Every call begins with this."""
        self.claims.expire(self._clock())
        self._stores.expire()

    def simulated(self, node: str) -> frozenset[str]:
        """Return the UUIDs of a node's GPUs that do not exist."""
        gpus = self.gpus.items.get(node)
        return (
            frozenset(each.uuid for each in gpus.status.devices if each.simulated)
            if gpus
            else frozenset()
        )

    def is_planned(self, attempt: AttemptKey) -> bool:
        """Tell whether places are held for an attempt that are not yet shown as written."""
        return bool(self._unwritten(attempt))

    def plan_of(self, attempt: AttemptKey) -> tuple[WorkerClaim, ...]:
        """Return the claims of an attempt, planned or written, by worker index."""
        workers = [w for w in self.claims.workers_of(attempt.job_uid) if w.attempt == attempt]
        return tuple(self.claims.workers[w] for w in sorted(workers, key=lambda w: w.index))

    def hold_plan(
        self,
        attempt: AttemptKey,
        placements: Iterable[Placement],
        *,
        seconds: float,
        version: str = "",
    ) -> None:
        """Hold places for all workers until the watch shows them written.

        After `seconds` without that the places are overdue, and a component that can read the API
        settles them.
        """
        self.drop_plans(attempt.job_uid)
        now = self._clock()
        for index, placement in enumerate(placements):
            claim = WorkerClaim(
                worker=WorkerKey(attempt, index),
                allocation=self.claims.allocation(placement),
                state=State.PLANNED,
                since=now,
                deadline=now + seconds,
                version=version,
            )
            self.claims.put_worker(claim)

    def hold_extra_worker(self, worker: WorkerKey, placement: Placement, *, seconds: float) -> None:
        """Hold a place for one more worker of an attempt that is planned or written.

        The place gets the deadline and version of the attempt's unwritten places. If there are
        none, it is held for `seconds` with version UNTOLD: no component that could write it knows
        of it yet.
        """
        now = self._clock()
        of_attempt = next(iter(self._unwritten(worker.attempt)), None)
        claim = WorkerClaim(
            worker=worker,
            allocation=self.claims.allocation(placement),
            state=State.PLANNED,
            since=of_attempt.since if of_attempt else now,
            deadline=of_attempt.deadline if of_attempt else now + seconds,
            version=of_attempt.version if of_attempt else UNREPORTED,
        )
        self.claims.put_worker(claim)

    def renew_plan(self, attempt: AttemptKey, *, seconds: float, version: str = "") -> None:
        """Hold a plan for `seconds` from now. Written places need no deadline."""
        now = self._clock()
        for claim in self.plan_of(attempt):
            if claim.state is State.PLANNED:
                renewed = dataclasses.replace(
                    claim, since=now, deadline=now + seconds, version=version
                )
                self.claims.put_worker(renewed)

    def overdue_plans(self) -> tuple[tuple[WorkerClaim, ...], ...]:
        """Return plans that should have been written by now, by attempt and worker index."""
        overdue = self.claims.overdue(self._clock())
        return tuple(map(self._unwritten, dict.fromkeys(worker.attempt for worker in overdue)))

    def settle_plan(self, plan: tuple[WorkerClaim, ...], outcome: Outcome) -> None:
        """Settle an overdue plan by the result of a read, unless the plan has changed since.

        A plan that was not written is dropped. Any other plan stays held until the watch shows it,
        and is read again after ASK_AGAIN_SECONDS.
        """
        if self._unwritten(plan[0].worker.attempt) != plan:
            return
        later = self._clock() + RETRY_SECONDS
        for claim in plan:
            if outcome is Outcome.NOT_LANDED:
                self.claims.drop_worker(claim.worker)
            else:
                self.claims.put_worker(dataclasses.replace(claim, deadline=later))

    def _unwritten(self, attempt: AttemptKey) -> tuple[WorkerClaim, ...]:
        held = self.plan_of(attempt)
        return tuple(claim for claim in held if claim.state is State.PLANNED)

    def drop_plans(self, job_uid: str) -> None:
        """End the job's planned claims; written ones end only with their attempt."""
        for worker in self.claims.workers_of(job_uid):
            if self.claims.workers[worker].state is State.PLANNED:
                self.claims.drop_worker(worker)

    def drop_unusable(self, attempt: AttemptKey) -> None:
        """End the attempt's planned claims of places that get no new work any more."""
        for claim in self._unwritten(attempt):
            if self.claims.obstacle(claim.allocation, may_be_left=True):
                self.claims.drop_worker(claim.worker)

    def assume(self, ask: PodRequest, placement: Placement, *, seconds: float) -> PodClaim:
        """Hold a place for a pod until its bind comes, or for `seconds`."""
        return self.hold(ask, self.claims.allocation(placement), seconds=seconds)

    def hold(self, ask: PodRequest, allocation: Allocation, *, seconds: float) -> PodClaim:
        """Hold the place of an earlier decision until its bind comes, or for `seconds`."""
        claim, now = PodClaim.of(ask, allocation, State.ASSUMED), self._clock()
        held = dataclasses.replace(claim, since=now, deadline=now + seconds)
        self.claims.put_pod(held)
        return held

    def renew(self, claim: PodClaim, *, seconds: float) -> None:
        """Hold an assumed place for `seconds` from now."""
        if claim.state is State.ASSUMED:
            self.claims.put_pod(dataclasses.replace(claim, deadline=self._clock() + seconds))

    def release(self, claim: PodClaim) -> None:
        """Release an assumed place."""
        if claim.state is State.ASSUMED:
            self.claims.drop_pod(claim.uid)

    def start_bind(self, ask: PodRequest, allocation: Allocation) -> PodClaim:
        """Hold a place while its Binding is being sent."""
        before = self.claims.pods.get(ask.uid)
        claim = dataclasses.replace(
            PodClaim.of(ask, allocation, State.BINDING),
            since=self._clock(),
            may_have_landed=before is not None and before.may_have_landed,
            member=ask.member or (before.member if before else None),
        )
        self.claims.put_pod(claim)
        return claim

    def end_bind(self, uid: str, outcome: Outcome) -> None:
        """Record the result of a Binding. The state from a later watch event is kept."""
        claim = self.claims.pods.get(uid)
        if claim is None or claim.state not in {State.BINDING, State.UNANSWERED}:
            return
        if outcome is Outcome.UNKNOWN and claim.state is State.BINDING:
            self._move(claim, State.UNANSWERED)
        self.settle(claim, outcome)

    def unconfirmed(self, *, older_than_seconds: float) -> tuple[PodClaim, ...]:
        """Return claims whose Binding was sent and that no watch event has shown for so long."""
        before = self._clock() - older_than_seconds
        states = {State.UNANSWERED, State.LANDED}
        pods = self.claims.pods.values()
        return tuple(c for c in pods if c.state in states and c.since <= before)

    def settle(self, claim: PodClaim, outcome: Outcome) -> None:
        """Record what a read showed of an unconfirmed claim, unless the claim has changed since."""
        if self.claims.pods.get(claim.uid) is not claim:
            return
        if outcome is Outcome.GONE:
            self.pods.is_gone(claim.uid)
        if outcome in {Outcome.GONE, Outcome.NOT_LANDED}:
            self.claims.drop_pod(claim.uid)
        elif outcome is Outcome.LANDED:
            self._move(claim, State.LANDED)

    def age_seconds(self, claim: PodClaim | WorkerClaim) -> float:
        """Return the seconds since the claim came into its state, or since its last plan answer."""
        return self._clock() - claim.since

    def _move(self, claim: PodClaim, state: State) -> None:
        moved = dataclasses.replace(
            claim, state=state, since=self._clock(), may_have_landed=state is State.UNANSWERED
        )
        self.claims.put_pod(moved)
