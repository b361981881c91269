# SPDX-License-Identifier: Apache-2.0
"""A GPUJob that has succeeded or failed: its last Job stays, for the logs, until it is deleted."""

from gpupack_crds import names
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_kube.objects import Job
from gpupack_operator.decision import times
from gpupack_operator.decision.model import (
    Action,
    Decision,
    DeleteGpuJob,
    DeleteJob,
    Observation,
    StopJob,
)

ENDS = {"Complete", "Failed"}


def decide(observation: Observation, status: GpuJobStatus) -> Decision:
    """Clear up, and delete the GPUJob when its time to live is over."""
    ttl = observation.job.spec.ttl_seconds_after_finished
    if ttl is None or status.finished_at is None:
        return Decision(status=status, actions=clearing(observation, status))
    over = times.after(times.read(status.finished_at), ttl)
    if over <= observation.now:
        return Decision(status=status, actions=(DeleteGpuJob(),))
    return Decision(status=status, actions=clearing(observation, status), again_at=over)


def clearing(observation: Observation, status: GpuJobStatus) -> tuple[Action, ...]:
    """Delete the Jobs of earlier attempts; stop the last where the operator gave it up."""
    last = names.job_name(observation.job.metadata.name, attempt=status.attempt)
    actions: list[Action] = []
    for job in observation.jobs:
        if job.metadata.name != last:
            actions += deletion(job)
        elif not _at_rest(job):
            actions.append(StopJob(name=last))
    return tuple(actions)


def deletion(job: Job) -> tuple[Action, ...]:
    """Delete a Job, unless that is under way."""
    if job.metadata.deletion_timestamp is not None:
        return ()
    return (DeleteJob(name=job.metadata.name, uid=job.metadata.uid),)


def _at_rest(job: Job) -> bool:
    over = any(found.type in ENDS and found.status == "True" for found in job.status.conditions)
    return over or job.spec.suspend or job.metadata.deletion_timestamp is not None
