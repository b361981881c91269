# SPDX-License-Identifier: Apache-2.0
"""GPUJobs from the watch: the admitted attempt of each and its placement."""

import dataclasses
import datetime as dt
import itertools
from bisect import bisect
from collections.abc import Iterator
from typing import Final

from gpupack_crds.gang_memory import has_gang_memory
from gpupack_crds.job_times import checkpointed_at
from gpupack_crds.placement import WorkerPlacement, by_worker
from gpupack_crds.worker_pods import WorkerPod, pods_of
from gpupack_queue import NO_USER, User
from gpupack_scheduler.ledger import claims
from gpupack_scheduler.ledger.claim_table import ClaimTable
from gpupack_scheduler.ledger.claims import Allocation, State, WorkerClaim
from gpupack_scheduler.ledger.placed_job import PlacedAttempt, PlacedJob, PlacedPreemption
from gpupack_scheduler.ledger.workers import AttemptKey, WorkerKey
from gpupack_scheduler.requests.created_by import user_of
from gpupack_scheduler.requests.needs import NO_NEEDS, Needs

MAX_ATTEMPTS_REPORTED: Final = 4
"""Number of attempts kept per job. Every change is seen, so more matter only after a start."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShownJob:
    """The last state of a GPUJob in the watch, as far as the queue reads it.

    Attributes:
        attempt: the current attempt.
        may_wait: False if the job has ended, is suspended or is being deleted.
        created_at, started_at: creation of the job, and start of the current attempt.
        seconds_left: time until its deadline, from the start of the running or the next attempt.
        ends_at: time at which its deadline is over, while an attempt runs.
        priority: priority with which it was admitted.
        preemption: preemption for this job while it waits.
        needs: resources of each worker other than GPUs, where there is a preemption for it.
        attempts: the last few attempts, the newest last.
        tickets: what the kubelet counts for a worker whose devices the status does not name.
        movable: the job from the watch, if it has places and may move to others.
        growing: the job from the watch, if it has places and more workers may get places.
        least, extra: workers that start together, and the maximum of extra workers.
        has_roles: whether its workers are of several kinds.
        has_gang_memory: whether pods of the attempt on one node have one /dev/shm.
        runs: whether all workers that start together have started.
        held_since: time since which it has its GPUs, over its revisions; None: since the attempt
            began.
        checkpointed_at: time at which it last saved its work, by its annotation; None: unknown.
        grace: seconds that its workers may take to end.
        user: the user that created the job; empty: unknown.
        reservation: name of the time-window reservation that it may use; None: none.
    """

    attempt: AttemptKey
    may_wait: bool
    created_at: dt.datetime | None
    started_at: dt.datetime | None
    seconds_left: float | None
    ends_at: dt.datetime | None
    priority: int
    preemption: PlacedPreemption | None
    attempts: tuple[PlacedAttempt, ...]
    tokens: dict[str, int]
    needs: tuple[Needs, ...] = ()
    movable: PlacedJob | None = None
    growing: PlacedJob | None = None
    least: int = 1
    extra: int = 0
    has_roles: bool = False
    has_gang_memory: bool = False
    runs: bool = False
    held_since: dt.datetime | None = None
    checkpointed_at: dt.datetime | None = None
    grace: float = 0.0
    user: User = NO_USER
    reservation: str | None = None

    @property
    def has_ended(self) -> bool:
        """Tell whether the status shows the end of its last attempt; its pods may still exist."""
        return bool(self.attempts) and self.attempts[-1].finished_at is not None

    @property
    def needs_of_workers(self) -> Iterator[Needs]:
        """Yield the needs of each worker by index; those of the last one repeat without an end."""
        yield from self.needs
        yield from itertools.repeat(self.needs[-1] if self.needs else NO_NEEDS)


class Jobs:
    """A reflector's store of GPUJobs."""

    def __init__(self, table: ClaimTable) -> None:
        self._claims = table
        self._shown: dict[str, ShownJob] = {}

    def shown(self, job_uid: str) -> ShownJob | None:
        """Return what is known of a GPUJob; None if the watch has not shown it, or it is gone."""
        return self._shown.get(job_uid)

    def is_known(self, attempt: AttemptKey) -> bool:
        """Tell whether the watch has shown this attempt, or a later one of the same job."""
        shown = self._shown.get(attempt.job_uid)
        return shown is not None and shown.attempt.number >= attempt.number

    def lags_behind(self, attempt: AttemptKey) -> bool:
        """Tell whether the watch has yet to show that the attempt before this one has ended."""
        shown = self._shown.get(attempt.job_uid)
        if shown is None or shown.attempt.number >= attempt.number:
            return False
        last = shown.attempts[-1] if shown.attempts else None
        has_begun = last is not None and last.finished_at is None
        return has_begun or shown.attempt.number < attempt.number - 1

    def await_plans(self) -> bool:
        """Tell whether a plan may give one of the shown jobs places, its first or others."""
        return any(map(self._awaits_plan, self._shown.values()))

    def _awaits_plan(self, shown: ShownJob) -> bool:
        if not shown.may_wait or shown.movable or shown.growing:
            return shown.may_wait
        workers = self._claims.workers_of(shown.attempt.job_uid)
        return not any(self._claims.workers[each].state is State.WRITTEN for each in workers)

    def see_all(self) -> None:
        """Add all jobs to the changes, for their reader."""
        for uid in self._shown:
            self._claims.changes.job(uid)

    def upsert(self, job: PlacedJob) -> None:
        """Add or update a GPUJob."""
        attempt = _attempt(job)
        pods = pods_of(job.status, least=job.spec.least) if job.status.holds_placement else ()
        self._shown[attempt.job_uid] = _shown(job, attempt, pods)
        self._claims.changes.job(attempt.job_uid)
        written = self._written(job, attempt, pods)
        dropped = []
        for worker in self._claims.workers_of(attempt.job_uid):
            was_written = self._claims.workers[worker].state is State.WRITTEN
            is_superseded = worker.attempt.number <= attempt.number
            is_extra = bool(written) and worker.attempt == attempt
            is_extra = is_extra and worker.index >= job.spec.least
            if worker not in written and (was_written or (is_superseded and not is_extra)):
                dropped.append(worker)
        held = self._claims.workers
        put = [claim for claim in written.values() if held.get(claim.worker) != claim]
        self._claims.change_workers(put=put, drop=dropped)
        for claim in put:
            name = f"worker {claim.worker.index} of {attempt}"
            self._claims.report_overbooked(claim.placement, of=name)

    def remove(self, job: PlacedJob) -> None:
        """Remove a GPUJob. Its pods hold their GPUs until they are gone too."""
        self._forget(job.metadata.uid)

    def replace(self, jobs: list[PlacedJob]) -> None:
        """Replace all GPUJobs by these. A plan may be for a job younger than the list."""
        listed = {job.metadata.uid for job in jobs}
        for uid in sorted(self._shown.keys() - listed):
            self._forget(uid)
        for job in jobs:
            self.upsert(job)

    def _forget(self, job_uid: str) -> None:
        self._shown.pop(job_uid, None)
        self._claims.changes.job(job_uid)
        self._claims.change_workers(drop=self._claims.workers_of(job_uid))

    def _written(
        self, job: PlacedJob, attempt: AttemptKey, pods: tuple[WorkerPod, ...]
    ) -> dict[WorkerKey, WorkerClaim]:
        if not job.status.holds_placement:
            return {}
        workers = by_worker(job.status.placement)
        parts = [(part, part.needs) for part in job.by_role]
        ends = list(itertools.accumulate(part.spec.least for part, _ in parts))
        firsts = {
            (pod.node, worker): pod.index
            for pod in pods
            if len(pod.workers) > 1
            for worker in pod.workers
        }
        of_worker = (parts[min(bisect(ends, each.worker), len(parts) - 1)] for each in workers)
        found = (
            self._claim(attempt, part, placed, needs)
            for placed, (part, needs) in zip(workers, of_worker, strict=True)
        )
        in_pods = (
            dataclasses.replace(
                claim, pod_index=firsts.get((claim.placement.node, claim.worker.index))
            )
            for claim in found
        )
        return {claim.worker: claim for claim in in_pods}

    def _claim(
        self,
        attempt: AttemptKey,
        job: PlacedJob,
        placed: WorkerPlacement,
        needs: Needs,
    ) -> WorkerClaim:
        """Return the claim of a placed worker.

        Its needs are those of the plan. After a restart there is no plan, and they are the job's
        own.
        """
        worker = WorkerKey(attempt, placed.worker)
        planned = self._claims.workers.get(worker)
        held = claims.believed(placed.devices)
        needs = Needs.of(planned.placement) if planned else needs
        placement = claims.placement(placed.node, held, needs=needs)
        allocation = Allocation(placement, {} if placed.devices else job.tickets)
        return WorkerClaim(worker=worker, allocation=allocation, state=State.WRITTEN)


def _shown(job: PlacedJob, attempt: AttemptKey, pods: tuple[WorkerPod, ...]) -> ShownJob:
    return ShownJob(
        attempt=attempt,
        may_wait=job.may_wait,
        created_at=job.metadata.creation_timestamp,
        started_at=job.started_at,
        seconds_left=job.seconds_left,
        ends_at=job.ends_at,
        priority=job.status.priority,
        preemption=job.status.preemption,
        attempts=job.status.attempts[-MAX_ATTEMPTS_REPORTED:],
        tokens=job.tickets,
        needs=_needs(job) if job.status.preemption is not None else (),
        movable=job if job.may_move else None,
        growing=job if job.may_grow else None,
        least=job.spec.least,
        extra=job.spec.extra,
        has_roles=bool(job.spec.roles),
        has_gang_memory=has_gang_memory(job.spec, pods),
        runs=job.status.phase == "Running",
        held_since=job.status.held_since,
        checkpointed_at=checkpointed_at(job.metadata.annotations),
        grace=job.grace,
        user=user_of(job.metadata),
        reservation=job.spec.reservation,
    )


def _needs(job: PlacedJob) -> tuple[Needs, ...]:
    """Return the needs of each worker; of a job without roles, once for all."""
    if not job.spec.roles:
        return (job.needs,)
    return tuple(
        needs for part in job.by_role for needs in itertools.repeat(part.needs, part.spec.least)
    )


def _attempt(job: PlacedJob) -> AttemptKey:
    return AttemptKey(
        namespace=job.metadata.namespace,
        job=job.metadata.name,
        job_uid=job.metadata.uid,
        number=job.status.attempt,
    )
