# SPDX-License-Identifier: Apache-2.0
"""What waits for its turn: an attempt of a GPUJob, as the operator asks for it."""

import dataclasses

from gpupack_core import Gang
from gpupack_core.queueing import Job, JobId, Tenant
from gpupack_extender.ledger.workers import AttemptKey


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GangAsk:
    """All workers of one attempt.

    Attributes:
        attempt: whose.
        gang: what they ask for.
        policy: by which placement policy; None: the cluster's.
        priority: the larger goes first.
        submitted: when the GPUJob was made, seconds since the epoch.
        duration: seconds from its start until its deadline; None: it has none.
        version: the GPUJob's resourceVersion, under which a plan will be written.
    """

    attempt: AttemptKey
    gang: Gang
    policy: str | None = None
    priority: int = 0
    submitted: float = 0.0
    duration: float | None = None
    version: str = ""

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
            name=self.attempt.job,
        )


def job_id(attempt: AttemptKey) -> JobId:
    """Of the attempt: the one before it may hold places while the next one waits."""
    return JobId(f"{attempt.job_uid}/{attempt.number}")


def lingering_id(node: str, uid: str) -> JobId:
    """Of a pod that is gone, on one node: that no other reports it is an agent's word."""
    return JobId(f"lingering/{node}/{uid}")


def pod_id(uid: str) -> JobId:
    """Of a pod of its own."""
    return JobId(f"pod/{uid}")
