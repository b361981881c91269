# SPDX-License-Identifier: Apache-2.0
"""Requests that wait in the queue.

A request is an attempt of a GPUJob, from a call of the operator; or from the watch a standalone pod
behind its gate, or the members of a pod group that start together.
"""

import dataclasses
from typing import Final, Self, TypeAlias

from gpupack_crds.gpujob_status import RunLimit
from gpupack_crds.job_times import seconds_left
from gpupack_kubeclient import objects
from gpupack_placement import Gang, NodeName
from gpupack_queue import NO_USER, Job, JobId, ReservationId, Tenant, User
from gpupack_scheduler.ledger.claim_table import ClaimTable
from gpupack_scheduler.ledger.claims import PodClaim
from gpupack_scheduler.ledger.workers import AttemptKey
from gpupack_scheduler.requests.pod_groups import GangKey
from gpupack_scheduler.requests.pod_request import PodRequest

POD_NAME: Final = "pod "
"""Prefix of the name of a standalone pod; no GPUJob has such a name."""

_POD: Final = "pod/"
_GROUP: Final = "group/"
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
        joins: the running gang of its pod group; None: it is no member of one.
    """

    pod: objects.Pod
    ask: PodRequest
    gang: Gang
    limit: RunLimit | None = None
    joins: GangKey | None = None
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupRequest:
    """The request of those members of a pod group that start together.

    Attributes:
        waits_as: the gang that they form while they wait.
        joins: the running gang that they complete; None: they begin a new one.
        members: their requests, by worker index.
        gang: their requests as a gang.
        submitted: creation of the oldest member, running or not, seconds since the epoch.
        completes: the rest of an admission of which only some gates were opened.
        job: the job of the queue.
    """

    waits_as: GangKey
    joins: GangKey | None
    members: tuple[GatedPodRequest, ...]
    gang: Gang
    submitted: float
    completes: bool = False
    policy: None = None
    job: Job = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Make the job once: a group may have a thousand members."""
        object.__setattr__(self, "job", _job_of_group(self))

    @property
    def namespace(self) -> str:
        """Return the namespace whose quota it counts against."""
        return self.waits_as.group.namespace

    @property
    def key(self) -> str:
        """Return the name that identifies it in its namespace; no GPUJob has such a name."""
        return group_id(self.waits_as)

    @property
    def first(self) -> objects.Pod:
        """Return the member that has the group's preemption in its annotation."""
        return self.members[0].pod


MAX_RECORDED_DEVICES: Final = 2048
"""Maximum of devices of a pod group that preempts: all annotations of a pod have 256 KiB together.
"""

QueueRequest: TypeAlias = GangRequest | GatedPodRequest | PodGroupRequest


def _job_of_group(ask: PodGroupRequest) -> Job:
    """Return the job of a group; it preempts only if the preemption fits into an annotation."""
    jobs = [each.job for each in ask.members]
    durations = [each.duration for each in jobs if each.duration is not None]
    estimates = [each.estimate for each in jobs if each.estimate is not None]
    users = {each.user for each in jobs}
    devices = sum(role.workers * role.request.devices for role in ask.gang.roles)
    return dataclasses.replace(
        jobs[0],
        id=group_id(ask.waits_as),
        gang=ask.gang,
        submitted=ask.submitted,
        duration=max(durations) if len(durations) == len(jobs) else None,
        estimate=max(estimates) if len(estimates) == len(jobs) else None,
        grace_seconds=max(each.grace_seconds for each in jobs),
        user=users.pop() if len(users) == 1 else NO_USER,
        name=group_name(ask.waits_as.group.name),
        preempts=devices <= MAX_RECORDED_DEVICES,
    )


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


def group_name(name: str) -> str:
    """Return the name of a pod group in messages; no GPUJob has such a name."""
    return f"{POD_NAME}group {name}"


def group_id(gang: GangKey) -> JobId:
    """Return the ID of a gang of a pod group; a status has at most 64 characters for it."""
    return JobId(f"{_GROUP}{gang.gang}")


def is_group(job: str) -> bool:
    """Tell whether the job is a gang of a pod group."""
    return job.startswith(_GROUP)


def gang_of(claims: ClaimTable, job: str) -> GangKey | None:
    """Return the gang of a pod group that runs; None if the job is something else."""
    return claims.gang_named(job.removeprefix(_GROUP)) if is_group(job) else None


def holder_id(claim: PodClaim) -> JobId:
    """Return the ID of the running job that a standalone pod belongs to: itself, or its gang."""
    gang = claim.gang
    return pod_id(claim.uid) if gang is None else group_id(gang)


def pods_of(claims: ClaimTable, job: str) -> tuple[PodClaim, ...]:
    """Return the standalone pods of a running job: one pod, or the members of a pod group."""
    if is_group(job):
        gang = gang_of(claims, job)
        return () if gang is None else claims.members_of(gang)
    claim = claims.pods.get(pod_uid(job) or "")
    return () if claim is None else (claim,)


def pod_uid(job: str) -> str | None:
    """Return the UID of a standalone pod; None if the job is something else."""
    return job.removeprefix(_POD) if job.startswith(_POD) else None


def extra_worker(job: str) -> tuple[JobId, int] | None:
    """Return the gang and the number (from 1) of an extra worker, from the queue's name of it."""
    gang, plus, number = job.rpartition("+")
    return (JobId(gang), int(number)) if plus and is_attempt(job) and number.isdecimal() else None


def is_attempt(job: str) -> bool:
    """Tell whether the job is an attempt of a GPUJob, or an extra worker of one."""
    return not job.startswith((_POD, _GROUP, _LINGERING))
