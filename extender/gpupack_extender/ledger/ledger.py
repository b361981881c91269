# SPDX-License-Identifier: Apache-2.0
"""What calls do to the books: plans, assumptions, binds. See the package for the picture."""

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterable
from typing import Final

import gpupack_core as core
from gpupack_extender.ledger.books import Books
from gpupack_extender.ledger.claims import Place, PodClaim, State, WorkerClaim
from gpupack_extender.ledger.demand import Demand
from gpupack_extender.ledger.fleet import Fleet
from gpupack_extender.ledger.jobs import Jobs
from gpupack_extender.ledger.pods import Pods
from gpupack_extender.ledger.workers import Attempt, Worker, worker_of
from gpupack_kube import objects

Clock = Callable[[], float]
"""Monotonic seconds."""

TIE_SEED: Final = 0
"""Ties between nodes go by an order drawn from this and the names: the same after every start,
whatever order the API lists nodes in, and the same in gpupack-simulator."""


class Outcome(enum.Enum):
    """What became of a Binding."""

    LANDED = enum.auto()
    NOT_LANDED = enum.auto()
    """It is known that it was not written and never will be."""
    UNKNOWN = enum.auto()


class Ledger:
    """Who holds what, and for how long.

    Attributes:
        cluster: what is free, as arrays; read it, never change it.
        books: the claims.
        nodes, gpus, jobs, pods: stores for reflectors.
        learner: what pods have asked for so far.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        observed_resources: Collection[str] = (),
        tie_seed: int | None = TIE_SEED,
    ) -> None:
        self._clock = clock
        self.cluster = core.Cluster(tie_seed=tie_seed)
        self.books = Books(self.cluster)
        fleet = Fleet(self.cluster, self.books, observed_resources)
        self.nodes, self.gpus = fleet.nodes, fleet.gpus
        self.jobs = Jobs(self.books)
        self.learner = core.Learner()
        demand = Demand(self.learner, observed_resources)
        self.pods = Pods(self.books, demand, observed_resources)

    def expire(self) -> None:
        """End the claims whose deadline has passed. Every call begins with this."""
        self.books.expire(self._clock())

    def plan_of(self, attempt: Attempt) -> tuple[WorkerClaim, ...]:
        """What is held for an attempt, planned or written, by worker index."""
        workers = [w for w in self.books.workers_of(attempt.job_uid) if w.attempt == attempt]
        return tuple(self.books.workers[w] for w in sorted(workers, key=lambda w: w.index))

    def hold_plan(
        self, attempt: Attempt, placements: Iterable[core.Placement], *, seconds: float
    ) -> None:
        """Hold places for all workers until the watch shows them written, or for `seconds`."""
        self.drop_plans(attempt.job_uid)
        deadline = self._clock() + seconds
        for index, placement in enumerate(placements):
            claim = WorkerClaim(
                worker=Worker(attempt, index),
                place=self.books.place(placement),
                state=State.PLANNED,
                deadline=deadline,
            )
            self.books.put_worker(claim)

    def renew_plan(self, attempt: Attempt, *, seconds: float) -> None:
        """Hold a plan for `seconds` from now; what is written needs no deadline."""
        deadline = self._clock() + seconds
        for claim in self.plan_of(attempt):
            if claim.state is State.PLANNED:
                self.books.put_worker(dataclasses.replace(claim, deadline=deadline))

    def drop_plans(self, job_uid: str) -> None:
        """End the job's planned claims; written ones end with their attempt alone."""
        for worker in self.books.workers_of(job_uid):
            if self.books.workers[worker].state is State.PLANNED:
                self.books.drop_worker(worker)

    def assume(self, pod: objects.Pod, placement: core.Placement, *, seconds: float) -> None:
        """Hold a place for a pod until its bind comes, or for `seconds`."""
        claim = self._claim(pod, self.books.place(placement), State.ASSUMED)
        self.books.put_pod(dataclasses.replace(claim, deadline=self._clock() + seconds))

    def renew(self, claim: PodClaim, *, seconds: float) -> None:
        """Hold an assumed place for `seconds` from now."""
        if claim.state is State.ASSUMED:
            self.books.put_pod(dataclasses.replace(claim, deadline=self._clock() + seconds))

    def release(self, claim: PodClaim) -> None:
        """Give an assumed place back."""
        if claim.state is State.ASSUMED:
            self.books.drop_pod(claim.uid)

    def start_bind(self, pod: objects.Pod, place: Place) -> PodClaim:
        """Hold a place while its Binding is on the way."""
        before = self.books.pods.get(pod.metadata.uid)
        claim = dataclasses.replace(
            self._claim(pod, place, State.BINDING),
            in_doubt=before is not None and before.in_doubt,
        )
        self.books.put_pod(claim)
        return claim

    def end_bind(self, uid: str, outcome: Outcome) -> None:
        """Say what became of a Binding. What a watch event said meanwhile stands."""
        claim = self.books.pods.get(uid)
        if claim is None or claim.state not in {State.BINDING, State.DOUBTFUL}:
            return
        if outcome is Outcome.UNKNOWN and claim.state is State.BINDING:
            self._move(claim, State.DOUBTFUL)
        self.settle(claim, outcome)

    def unconfirmed(self, *, older_than_seconds: float) -> tuple[PodClaim, ...]:
        """Claims whose Binding was sent and that no watch event has shown for so long."""
        before = self._clock() - older_than_seconds
        states = {State.DOUBTFUL, State.LANDED}
        pods = self.books.pods.values()
        return tuple(c for c in pods if c.state in states and c.since <= before)

    def settle(self, claim: PodClaim, outcome: Outcome) -> None:
        """Say what a read told about an unconfirmed claim, unless it has changed meanwhile."""
        if self.books.pods.get(claim.uid) is not claim:
            return
        if outcome is Outcome.NOT_LANDED:
            self.books.drop_pod(claim.uid)
        elif outcome is Outcome.LANDED:
            self._move(claim, State.LANDED)

    def age_seconds(self, claim: PodClaim) -> float:
        """How long the claim has been in its state."""
        return self._clock() - claim.since

    def _move(self, claim: PodClaim, state: State) -> None:
        moved = dataclasses.replace(
            claim, state=state, since=self._clock(), in_doubt=state is State.DOUBTFUL
        )
        self.books.put_pod(moved)

    def _claim(self, pod: objects.Pod, place: Place, state: State) -> PodClaim:
        return PodClaim(
            uid=pod.metadata.uid,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            place=place,
            state=state,
            worker=worker_of(pod),
            since=self._clock(),
        )
