# SPDX-License-Identifier: Apache-2.0
"""One attempt as it was observed, and what may be found out about it.

Only pods of the Job that is seen are its workers: one whose Job is gone says nothing about an
attempt that still runs. Who their controller is, is their author's word, and the Job's controller
takes them for its own: so a worker must also ask for the GPUs of one, which a quota counts, and be
one of as many as there are.
"""

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Final

from gpupack_crds import indices, names
from gpupack_crds.gpujob import FailureAction, GpuJobSpec
from gpupack_crds.gpujob_status import (
    Attempt,
    EndedWorkers,
    GpuJobStatus,
    Outcome,
    PlannedPod,
    WorkerResult,
)
from gpupack_crds.placement import by_worker
from gpupack_kube.objects import Condition, Job
from gpupack_operator.decision import times
from gpupack_operator.decision.model import Limits, Observation
from gpupack_operator.decision.unplanned import beyond_plan
from gpupack_operator.decision.workers import Worker, by_index, may_run
from gpupack_operator.manifests.limits import gpu_container, limits
from gpupack_operator.manifests.owner import index_of, is_controlled_by

STRANGERS_NAMED = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How an attempt ended.

    Attributes:
        outcome: what it counts as.
        reason: typed cause, ours or Kubernetes' own.
        message: a sentence for people.
        exit_code: of the worker container, where that is what failed.
        for_good: another attempt would end the same way.
        worker: index of the one that broke first; None: that is not known, or nobody's.
    """

    outcome: Outcome
    reason: str
    message: str
    exit_code: int | None = None
    for_good: bool = False
    worker: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A verdict, and from when on it holds if nothing changes until then."""

    due: dt.datetime
    verdict: Verdict


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """Workers that the status says have ended; there may be no pod of them any more.

    Attributes:
        succeeded: indices of those that succeeded.
        ignored: indices of those whose failure the failure policy ignores.
        last_at: when the last of them ended.
        results: what they measured.
    """

    succeeded: frozenset[int] = frozenset()
    ignored: frozenset[int] = frozenset()
    last_at: dt.datetime | None = None
    results: tuple[WorkerResult, ...] = ()

    @property
    def indices(self) -> frozenset[int]:
        """Indices of all of them."""
        return self.succeeded | self.ignored

    @property
    def moments(self) -> list[dt.datetime]:
        """When the last of them ended, if any has."""
        return [self.last_at] if self.last_at is not None else []


NONE_ENDED: Final = Ended()


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt: its Job, its pods, and the rules that it is judged by.

    Of an elastic gang the workers that start together; or one of those beside them, by itself.

    Attributes:
        indices: of the workers that there are to be.
        workers: the pods that count.
        strangers: names of those that say to be the Job's and are no workers of it.
        planned: by worker index, the node of its place.
        planned_pod: the pod that each worker was planned as; None: that is not known.
        ended: workers that are known to have ended, whether or not their pods are there.
        pull_secrets: that the pods have by the chart's values; None: no image is of ours.
    """

    number: int
    started_at: dt.datetime
    running: bool
    indices: range
    job: Job | None
    workers: tuple[Worker, ...]
    strangers: tuple[str, ...]
    spec: GpuJobSpec
    deadline: dt.datetime | None
    now: dt.datetime
    limits: Limits
    planned: Mapping[int, str]
    planned_pod: PlannedPod | None = None
    ended: Ended = NONE_ENDED
    pull_secrets: tuple[str, ...] | None = None

    @property
    def all_created(self) -> bool:
        """Whether there is a pod of each worker, or what is left of one that ended."""
        return not self.missing

    @property
    def missing(self) -> list[int]:
        """Indices of the workers that have no pod and are not known to have ended."""
        return sorted(set(self.indices) - by_index(self.workers).keys() - self.ended.indices)

    @property
    def bound(self) -> int:
        """How many workers have a node, or had one until they ended."""
        bound = {index for index, each in by_index(self.workers).items() if each.bound}
        return len(bound | self.ended.indices)

    @property
    def started(self) -> int:
        """How many workers have started."""
        started = {index for index, each in by_index(self.workers).items() if each.started}
        return len(started | self.ended.indices)

    @property
    def count(self) -> int:
        """How many workers there are to be."""
        return len(self.indices)

    @property
    def ended_at(self) -> dt.datetime | None:
        """When the last worker ended; None: one may still run, or no object says when it ended."""
        over = self.job_condition("Failed") or self.job_condition("Complete")
        ends = [worker.ended_at for worker in self.workers]
        known = [end for end in ends if end is not None]
        moments = known + self.ended.moments
        if moments and self.all_created and len(known) == len(ends):
            return max(moments)
        gone = not any(may_run(worker.pod, ()) for worker in self.workers)
        return over.last_transition_time if over and gone else None

    @property
    def told_of_strangers(self) -> str:
        """What to add to a message where workers are missing; empty if there are no strangers."""
        if not self.strangers:
            return ""
        named = ", ".join(self.strangers[:STRANGERS_NAMED])
        more = len(self.strangers) - STRANGERS_NAMED
        named += f" and {more} more" if more > 0 else ""
        return (
            f"; controlled by its Job, and not counted, since they do not ask for the GPUs of a "
            f"worker or have no worker's index: pods {named}; delete them"
        )

    @property
    def told_of_more(self) -> str:
        """What to add to a message where workers do not start; empty if all are as planned."""
        more = beyond_plan((worker.pod for worker in self.workers), self.planned_pod)
        if not more:
            return ""
        return f"; its pods request more than was planned, and count as they are: {more}"

    def job_condition(self, kind: str) -> Condition | None:
        """A condition of the Job that is true."""
        conditions = self.job.status.conditions if self.job else ()
        return next((c for c in conditions if c.type == kind and c.status == "True"), None)

    def action_for(self, exit_code: int | None) -> FailureAction | None:
        """What the failure policy says about an exit code; the first rule that matches decides."""
        for rule in self.spec.failure_policy:
            if exit_code in rule.exit_codes:
                return rule.action
        return None


def view(observation: Observation, status: GpuJobStatus, attempt: Attempt) -> AttemptView:
    """Look at one attempt of what was observed: at those of its workers that start together."""
    name = names.job_name(observation.job.metadata.name, attempt=attempt.number)
    job = next((job for job in observation.jobs if job.metadata.name == name), None)
    spec = observation.job.spec
    wanted = range(spec.least)
    workers, strangers = _workers(observation, job, wanted)
    return AttemptView(
        number=attempt.number,
        started_at=times.read(attempt.started_at),
        running=status.phase == "Running",
        indices=wanted,
        job=job,
        workers=workers,
        strangers=strangers,
        spec=spec,
        deadline=times.deadline(spec, status),
        now=observation.now,
        limits=observation.limits,
        planned={place.worker: place.node for place in by_worker(status.placement)},
        planned_pod=status.planned_pod,
        ended=_ended(status.ended_workers),
        pull_secrets=observation.pull_secrets,
    )


def view_beside(observation: Observation, attempt: AttemptView, job: Job) -> AttemptView:
    """Look at the worker of a Job of its own, which began when that was created."""
    wanted = range(index_of(job), index_of(job) + 1)
    workers, strangers = _workers(observation, job, wanted)
    return dataclasses.replace(
        attempt,
        started_at=job.metadata.creation_timestamp or attempt.started_at,
        running=any(worker.started for worker in workers),
        indices=wanted,
        job=job,
        workers=workers,
        strangers=strangers,
        deadline=None,
        ended=NONE_ENDED,
    )


def _ended(found: EndedWorkers | None) -> Ended:
    if found is None:
        return NONE_ENDED
    return Ended(
        succeeded=frozenset(indices.read(found.succeeded)),
        ignored=frozenset(indices.read(found.ignored)),
        last_at=times.read(found.last_at) if found.last_at else None,
        results=found.results,
    )


def _workers(
    observation: Observation, job: Job | None, wanted: range
) -> tuple[tuple[Worker, ...], tuple[str, ...]]:
    """The pods that are a Job's workers, and the names of those that only say so."""
    of_gpus = limits(observation.job.spec)
    workers: list[Worker] = []
    strangers: list[str] = []
    for pod in observation.pods:
        if job is None or not is_controlled_by(pod, job):
            continue
        container = gpu_container(pod, of_gpus)
        if index_of(pod) in wanted and container is not None:
            workers.append(Worker(pod, container))
        else:
            strangers.append(pod.metadata.name)
    return tuple(workers), tuple(sorted(strangers))
