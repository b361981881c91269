# SPDX-License-Identifier: Apache-2.0
"""Requests that wait in the queue.

A request is either an attempt of a GPUJob, from a call of the operator, or a standalone pod behind
its gate, from the watch.
"""

import dataclasses
from typing import Final, Self, TypeAlias

from gpupack_crds.gpujob_status import RunLimit
from gpupack_crds.job_times import seconds_left
from gpupack_kubeclient import objects
from gpupack_placement import Gang, NodeName
from gpupack_queue import NO_USER, Job, JobId, ReservationId, Tenant, User
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.requests.pod_request import PodRequest

POD_NAME: Final = "pod "
"""Prefix of the name of a standalone pod; no GPUJob has such a name."""

_POD: Final = "pod/"
_LINGERING: Final = "lingering/"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GangRequest:
    """The request of all workers of one attempt.

    Attributes:
        attempt: the attempt.
        gang: the request of its workers.
        policy: the placement policy; None: the cluster's.
        priority: priority in the queue; the larger goes first.
        submitted: creation of the GPUJob, seconds since the epoch.
        since: start of its waiting time, seconds since the epoch; None: now.
        duration: seconds from its start until its deadline; None: it has none.
        estimate: learned duration of jobs of its name, seconds; None: too few have ended.
        version: the GPUJob's resourceVersion, under which a plan will be written.
        avoid: nodes on which it broke recently.
        movable: it may be stopped and started again elsewhere.
        extra: maximum number of extra workers in addition to the gang.
        held_since: time since which it has the GPUs that are reserved for it, seconds since the
            epoch.
        grace: seconds that its workers may take to end.
        user: the user that created the GPUJob; empty: unknown.
        model_fallback_seconds: waiting time that permits one more of its models, which are in order
            of preference; None: all are permitted at once.
        reservation: name of the time-window reservation that it may use; None: none.
    """

    attempt: AttemptKey
    gang: Gang
    policy: str | None = None
    priority: int = 0
    submitted: float = 0.0
    since: float | None = None
    duration: float | None = None
    estimate: float | None = None
    version: str = ""
    avoid: frozenset[NodeName] = frozenset()
    movable: bool = False
    extra: int = 0
    held_since: float | None = None
    grace: float = 0.0
    user: User = NO_USER
    model_fallback_seconds: float | None = None
    reservation: str | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace whose quota it counts against."""
        return self.attempt.namespace

    @property
    def key(self) -> str:
        """Return the name that identifies it in its namespace."""
        return self.attempt.job

    def within(self, limit: RunLimit | None) -> Self:
        """Return the request of a first attempt with the maximum run time of its cohort."""
        seconds = seconds_left(self.duration, limit.seconds if limit else None, 0.0)
        return dataclasses.replace(self, duration=seconds)

    @property
    def job(self) -> Job:
        """Return the job of the queue."""
        return Job(
            id=job_id(self.attempt),
            gang=self.gang,
            submitted=self.submitted,
            tenant=Tenant(self.attempt.namespace),
            priority=self.priority,
            duration=self.duration,
            estimate=self.estimate,
            name=self.attempt.job,
            avoid=self.avoid,
            movable=self.movable,
            extra_workers=self.extra,
            held_since=self.held_since,
            grace_seconds=self.grace,
            user=self.user,
            model_fallback_seconds=self.model_fallback_seconds,
            reservation=reservation_id(self.namespace, self.reservation),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GatedPodRequest:
    """The request of a standalone pod: a gang of one worker.

    Attributes:
        pod: the pod from the watch; writes name its version.
        ask: its request, with the rules about nodes.
        gang: its request as a gang.
        limit: maximum run time by its cohort; None: there is none.
    """

    pod: objects.Pod
    ask: PodRequest
    gang: Gang
    limit: RunLimit | None = None
    policy: None = None

    @property
    def namespace(self) -> str:
        """Return the namespace whose quota it counts against."""
        return self.ask.namespace

    @property
    def key(self) -> str:
        """Return the name that identifies it in its namespace; no GPUJob has such a name."""
        return pod_id(self.ask.uid)

    @property
    def job(self) -> Job:
        """Return the job of the queue."""
        return waiting_pod(self.ask, self.limit)


QueueRequest: TypeAlias = GangRequest | GatedPodRequest


def waiting_pod(ask: PodRequest, limit: RunLimit | None = None) -> Job:
    """Return the job of a pod that needs a place; `limit`: that of its cohort.

    Raises:
        RequestInvalid: it cannot be served.
    """
    job = Job(
        id=pod_id(ask.uid),
        gang=Gang.of(1, ask.served()),
        submitted=ask.created,
        tenant=Tenant(ask.namespace),
        priority=ask.priority,
        duration=ask.duration,
        grace_seconds=ask.grace,
        user=ask.user,
        name=f"{POD_NAME}{ask.name}",
        reservation=reservation_id(ask.namespace, ask.reservation),
    )
    return limited(job, limit)


def limited(job: Job, limit: RunLimit | None) -> Job:
    """Return the job of a standalone pod with the end that its cohort's limit lets expect.

    The limit is an estimate and not a deadline: PodDisruptionBudgets may delay the eviction.
    """
    seconds = None if limit is None else float(limit.seconds)
    if seconds is not None and job.duration is not None and job.duration <= seconds:
        seconds = None
    return job if seconds == job.estimate else dataclasses.replace(job, estimate=seconds)


def reservation_id(namespace: str, name: str | None) -> ReservationId | None:
    """Return the ID of a time-window reservation; None: no name is given."""
    return ReservationId(f"{namespace}/{name}") if name else None


def job_id(attempt: AttemptKey) -> JobId:
    """Return the ID of an attempt: the previous one may hold places while the next one waits."""
    return JobId(f"{attempt.job_uid}/{attempt.number}")


def lingering_id(node: str, uid: str) -> JobId:
    """Return the ID of a lingering pod on one node.

    The ID contains the node: only an agent's report says that no other node has the pod.
    """
    return JobId(f"{_LINGERING}{node}/{uid}")


def pod_id(uid: str) -> JobId:
    """Return the ID of a standalone pod."""
    return JobId(f"{_POD}{uid}")


def pod_uid(job: str) -> str | None:
    """Return the UID of a standalone pod; None if the job is something else."""
    return job.removeprefix(_POD) if job.startswith(_POD) else None


def extra_worker(job: str) -> tuple[JobId, int] | None:
    """Return the gang and the number (from 1) of an extra worker, from the queue's name of it."""
    gang, plus, number = job.rpartition("+")
    return (JobId(gang), int(number)) if plus and is_attempt(job) and number.isdecimal() else None


def is_attempt(job: str) -> bool:
    """Tell whether the job is an attempt of a GPUJob, or an extra worker of one."""
    return not job.startswith((_POD, _LINGERING))
