# SPDX-License-Identifier: Apache-2.0
"""What waits for its turn.

An attempt of a GPUJob, as the operator asks for it; a pod of its own behind its gate, as the watch
shows it.
"""

import dataclasses
from typing import Final, TypeAlias

from gpupack_core import Gang, NodeName
from gpupack_core.queueing import Job, JobId, Tenant
from gpupack_kube import objects
from gpupack_scheduling.asks.pod_ask import PodAsk
from gpupack_scheduling.ledger.workers import AttemptKey

POD_NAME: Final = "pod "
"""How the name of a pod of its own begins: that of no GPUJob does."""

_POD: Final = "pod/"
_LINGERING: Final = "lingering/"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GangAsk:
    """All workers of one attempt.

    Attributes:
        attempt: whose.
        gang: what they ask for.
        policy: by which placement policy; None: the cluster's.
        priority: the larger goes first.
        submitted: when the GPUJob was made, seconds since the epoch.
        since: since when it waits, likewise; None: from now on.
        duration: seconds from its start until its deadline; None: it has none.
        estimate: seconds that jobs of its name took; None: too few have ended.
        version: the GPUJob's resourceVersion, under which a plan will be written.
        avoid: nodes on which it broke of late.
        movable: it may be stopped and started again elsewhere.
        extra: so many workers more may run beside the gang.
        held_since: since when it has the GPUs that are kept for it, seconds since the epoch.
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

    @property
    def namespace(self) -> str:
        """Whose quota it counts against."""
        return self.attempt.namespace

    @property
    def key(self) -> str:
        """By which it is told from others of its namespace."""
        return self.attempt.job

    @property
    def job(self) -> Job:
        """As the queue knows it."""
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
            extra=self.extra,
            held_since=self.held_since,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GatedAsk:
    """A gang of one.

    Attributes:
        pod: as the watch shows it; what is written names its version.
        ask: what it asks for, on which nodes.
        gang: the same.
    """

    pod: objects.Pod
    ask: PodAsk
    gang: Gang
    policy: None = None

    @property
    def namespace(self) -> str:
        """Whose quota it counts against."""
        return self.ask.namespace

    @property
    def key(self) -> str:
        """By which it is told from others of its namespace; no GPUJob has such a name."""
        return pod_id(self.ask.uid)

    @property
    def job(self) -> Job:
        """As the queue knows it."""
        return waiting_pod(self.ask)


Ask: TypeAlias = GangAsk | GatedAsk


def waiting_pod(ask: PodAsk) -> Job:
    """A pod that wants a place.

    Raises:
        AskInvalid: it cannot be served.
    """
    return Job(
        id=pod_id(ask.uid),
        gang=Gang(1, ask.served()),
        submitted=ask.created,
        tenant=Tenant(ask.namespace),
        priority=ask.priority,
        name=f"{POD_NAME}{ask.name}",
    )


def job_id(attempt: AttemptKey) -> JobId:
    """Of the attempt: the one before it may hold places while the next one waits."""
    return JobId(f"{attempt.job_uid}/{attempt.number}")


def lingering_id(node: str, uid: str) -> JobId:
    """Of a pod that is gone, on one node: that no other reports it is an agent's word."""
    return JobId(f"{_LINGERING}{node}/{uid}")


def pod_id(uid: str) -> JobId:
    """Of a pod of its own."""
    return JobId(f"{_POD}{uid}")


def pod_uid(job: str) -> str | None:
    """Of a pod of its own; None: it is something else."""
    return job.removeprefix(_POD) if job.startswith(_POD) else None


def extra_worker(job: str) -> tuple[JobId, int] | None:
    """Of an extra worker of a gang, as `gpupack_core` names it: the gang, and its number from 1."""
    gang, plus, number = job.rpartition("+")
    return (JobId(gang), int(number)) if plus and is_attempt(job) and number.isdecimal() else None


def is_attempt(job: str) -> bool:
    """Whether it is an attempt of a GPUJob, or an extra worker of one."""
    return not job.startswith((_POD, _LINGERING))
