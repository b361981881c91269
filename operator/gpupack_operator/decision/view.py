# SPDX-License-Identifier: Apache-2.0
"""One attempt as it was observed, and conclusions about it.

Workers are only in pods of the Jobs that are seen: a pod whose Job is deleted says nothing about an
attempt that still runs. The author of a pod can name any controller, and the Job's controller then
counts the pod as its own. So a pod must also request the GPUs of as many workers as it should have,
which a quota counts, in containers with the workers' names.
"""

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Final

from gpupack_crds import indices
from gpupack_crds.gpujob import FailureAction, GpuJobSpec
from gpupack_crds.gpujob_status import (
    Attempt,
    EndedWorkers,
    GpuJobStatus,
    Outcome,
    RunLimit,
    WorkerResult,
)
from gpupack_crds.placement import by_worker
from gpupack_kubeclient.objects import Condition, Job, Pod
from gpupack_operator.decision import times
from gpupack_operator.decision.excess_requests import find_excess_request
from gpupack_operator.decision.gang_jobs import GangJobs, JobWorkers, gang_jobs
from gpupack_operator.decision.model import Limits, Observation
from gpupack_operator.decision.planned_pods import PlannedPods, planned_pods
from gpupack_operator.decision.workers import Worker, by_index, may_run
from gpupack_operator.manifests.limits import gpu_containers, limits
from gpupack_operator.manifests.owner import controller, index_of

MAX_NAMED_PODS = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """End of an attempt.

    Attributes:
        outcome: the class of the end.
        reason: typed cause, gpupack's or Kubernetes' own.
        message: a sentence for users.
        exit_code: exit code of the worker container, if that failed.
        permanent: whether another attempt would end the same way.
        worker: index of the worker that failed first; None: it is not known, or no worker failed.
    """

    outcome: Outcome
    reason: str
    message: str
    exit_code: int | None = None
    permanent: bool = False
    worker: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Verdict, and the time from which it holds if nothing changes until then."""

    due: dt.datetime
    verdict: Verdict


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedEnds:
    """Workers that have ended according to the status; their pods may no longer exist.

    Attributes:
        succeeded: indices of the workers that succeeded.
        ignored: indices of the workers whose failure the failure policy ignores.
        last_at: when the last of them ended.
        results: what they measured.
    """

    succeeded: frozenset[int] = frozenset()
    ignored: frozenset[int] = frozenset()
    last_at: dt.datetime | None = None
    results: tuple[WorkerResult, ...] = ()

    @property
    def indices(self) -> frozenset[int]:
        """Indices of all ended workers."""
        return self.succeeded | self.ignored

    @property
    def end_times(self) -> list[dt.datetime]:
        """Time at which the last of them ended, as a list; empty: none has."""
        return [self.last_at] if self.last_at is not None else []


NONE_ENDED: Final = RecordedEnds()


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt: its Jobs, its workers, and the rules that judge it.

    For an elastic gang, it has the workers that start together, or a single extra worker.

    Attributes:
        indices: indices of the workers that should exist.
        expected_jobs: the Jobs that should exist, and the workers of each.
        jobs: the existing ones of these Jobs.
        workers: the workers in pods that count.
        foreign_pods: names of pods that claim to be the Job's and have none of its workers.
        run_limit: the cohort's deadline, if it is the one that counts.
        planned: the planned node by worker index.
        planned_pods: by role, the pod with which its workers were planned; no role: all workers'.
        ended: workers that are known to have ended, whether or not their pods exist.
        earlier: earlier attempts that the status still lists.
        pull_secrets: pull secrets of the pods by the chart's values; None: no image is gpupack's.
    """

    number: int
    started_at: dt.datetime
    running: bool
    indices: range
    expected_jobs: GangJobs
    jobs: tuple[Job, ...]
    workers: tuple[Worker, ...]
    foreign_pods: tuple[str, ...]
    spec: GpuJobSpec
    deadline: dt.datetime | None
    run_limit: RunLimit | None
    now: dt.datetime
    limits: Limits
    planned: Mapping[int, str]
    planned_pods: PlannedPods = dataclasses.field(default_factory=dict)
    ended: RecordedEnds = NONE_ENDED
    earlier: tuple[Attempt, ...] = ()
    pull_secrets: tuple[str, ...] | None = None

    @property
    def all_created(self) -> bool:
        """Whether each worker has a pod, or has ended."""
        return not self.missing

    @property
    def missing(self) -> list[int]:
        """Indices of the workers that have no pod and are not known to have ended."""
        return sorted(set(self.indices) - by_index(self.workers).keys() - self.ended.indices)

    @property
    def missing_jobs(self) -> frozenset[str]:
        """Names of the Jobs that should exist and do not."""
        return frozenset(self.expected_jobs) - {job.metadata.name for job in self.jobs}

    @property
    def has_job_per_pod(self) -> bool:
        """Whether each pod has its own Job, because pods of the gang differ."""
        return any(each.is_of_pod for each in self.expected_jobs.values())

    @property
    def began_at(self) -> dt.datetime | None:
        """Time at which the Job controller began with the last of its Jobs.

        None means that it has not begun.
        """
        starts = [job.status.start_time for job in self.jobs]
        known = [start for start in starts if start is not None]
        return max(known) if known and len(known) == len(self.expected_jobs) else None

    @property
    def bound(self) -> int:
        """Number of workers that have a node, or had one until they ended."""
        bound = {index for index, each in by_index(self.workers).items() if each.bound}
        return len(bound | self.ended.indices)

    @property
    def started(self) -> int:
        """Number of workers that have started."""
        started = {index for index, each in by_index(self.workers).items() if each.started}
        return len(started | self.ended.indices)

    @property
    def count(self) -> int:
        """Number of workers that should exist."""
        return len(self.indices)

    @property
    def ended_at(self) -> dt.datetime | None:
        """Time at which the last worker ended.

        None means that one may still run, or that the time is not known.
        """
        ends = [worker.ended_at for worker in self.workers]
        known = [end for end in ends if end is not None]
        moments = known + self.ended.end_times
        if moments and self.all_created and len(known) == len(ends):
            return max(moments)
        overs = [condition_of(job, "Failed") or condition_of(job, "Complete") for job in self.jobs]
        if not overs or self.missing_jobs or any(may_run(each.pod, ()) for each in self.workers):
            return None
        times_of = [over.last_transition_time for over in overs if over is not None]
        moments = [moment for moment in times_of if moment is not None]
        return max(moments) if len(moments) == len(overs) else None

    @property
    def foreign_pods_message(self) -> str:
        """Addition to a message about missing workers; empty if there are no such pods."""
        if not self.foreign_pods:
            return ""
        named = ", ".join(self.foreign_pods[:MAX_NAMED_PODS])
        more = len(self.foreign_pods) - MAX_NAMED_PODS
        named += f" and {more} more" if more > 0 else ""
        return (
            f"; controlled by its Job, and not counted, since they do not request the GPUs of a "
            f"worker or have no worker's index: pods {named}; delete them"
        )

    @property
    def excess_message(self) -> str:
        """Addition to a message about workers that do not start; empty if all are as planned."""
        more = ""
        for name, planned in self.planned_pods.items():
            pods = (w.pod_as_planned for w in self.workers if self._role_name(w.index) == name)
            more = more or find_excess_request(pods, planned)
        if not more:
            return ""
        return f"; its pods request more than was planned, and count as they are: {more}"

    def _role_name(self, worker: int) -> str:
        role = self.spec.role_of(worker)
        return role.name if role else ""

    def workers_of(self, job: Job) -> tuple[int, ...]:
        """Return the indices of the workers of one of its Jobs."""
        return self.expected_jobs[job.metadata.name].indices

    def action_for(self, exit_code: int | None) -> FailureAction | None:
        """Return the failure policy's action for an exit code; the first matching rule decides."""
        for rule in self.spec.failure_policy:
            if exit_code in rule.exit_codes:
                return rule.action
        return None


def condition_of(job: Job, kind: str) -> Condition | None:
    """Return a condition of a Job that is true."""
    conditions = job.status.conditions
    return next((c for c in conditions if c.type == kind and c.status == "True"), None)


def view(observation: Observation, status: GpuJobStatus, attempt: Attempt) -> AttemptView:
    """Return the view of an attempt with the workers that start together."""
    spec = observation.job.spec
    expected_jobs = gang_jobs(observation.job, status, attempt=attempt.number)
    jobs = tuple(job for job in observation.jobs if job.metadata.name in expected_jobs)
    workers, foreign_pods = _workers(observation, jobs, expected_jobs)
    return AttemptView(
        number=attempt.number,
        started_at=times.read(attempt.started_at),
        running=status.phase == "Running",
        indices=range(spec.least),
        expected_jobs=expected_jobs,
        jobs=jobs,
        workers=workers,
        foreign_pods=foreign_pods,
        spec=spec,
        deadline=times.deadline(spec, status),
        run_limit=status.run_limit,
        now=observation.now,
        limits=observation.limits,
        planned={place.worker: place.node for place in by_worker(status.placement)},
        planned_pods=planned_pods(status),
        ended=_ended(status.ended_workers),
        earlier=tuple(each for each in status.attempts if each.number < attempt.number),
        pull_secrets=observation.pull_secrets,
    )


def extra_worker_view(observation: Observation, attempt: AttemptView, job: Job) -> AttemptView:
    """Return the view of an extra worker, which began when its Job was created."""
    index = index_of(job)
    expected_jobs = {job.metadata.name: JobWorkers((index,))}
    workers, foreign_pods = _workers(observation, (job,), expected_jobs)
    return dataclasses.replace(
        attempt,
        started_at=job.metadata.creation_timestamp or attempt.started_at,
        running=any(worker.started for worker in workers),
        indices=range(index, index + 1),
        expected_jobs=expected_jobs,
        jobs=(job,),
        workers=workers,
        foreign_pods=foreign_pods,
        deadline=None,
        ended=NONE_ENDED,
    )


def _ended(found: EndedWorkers | None) -> RecordedEnds:
    if found is None:
        return NONE_ENDED
    return RecordedEnds(
        succeeded=frozenset(indices.read(found.succeeded)),
        ignored=frozenset(indices.read(found.ignored)),
        last_at=times.read(found.last_at) if found.last_at else None,
        results=found.results,
    )


def _workers(
    observation: Observation, jobs: tuple[Job, ...], expected_jobs: GangJobs
) -> tuple[tuple[Worker, ...], tuple[str, ...]]:
    """Return the workers of some Jobs, and the names of pods that only claim to be theirs."""
    spec = observation.job.spec
    by_uid = {job.metadata.uid: expected_jobs[job.metadata.name] for job in jobs}
    workers: list[Worker] = []
    foreign_pods: list[str] = []
    for pod in observation.pods:
        by = controller(pod)
        expected = by_uid.get(by.uid) if by else None
        if expected is None:
            continue
        found = _of_pod(pod, gpu_containers(pod, limits(spec.of_worker(index_of(pod)))), expected)
        workers += found
        foreign_pods += [] if found else [pod.metadata.name]
    return tuple(workers), tuple(sorted(foreign_pods))


def _of_pod(pod: Pod, containers: tuple[str, ...], expected: JobWorkers) -> tuple[Worker, ...]:
    """Return the workers of a pod; none if the pod is not as its Job creates it."""
    index = index_of(pod)
    if not expected.in_one_pod:
        is_one = index in expected.indices and len(containers) == 1
        return (Worker(pod, containers[0]),) if is_one else ()
    pairs = list(zip(containers, expected.indices, strict=False))
    are_all = len(containers) == len(expected.indices) and index == expected.indices[0]
    if not are_all or not all(name.endswith(f"-{worker}") for name, worker in pairs):
        return ()
    peers = frozenset(containers)
    return tuple(Worker(pod, name, worker, peers - {name}) for name, worker in pairs)
