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

CONTROLLER_SECONDS = 10.0
"""How long the Job controller may take to end a Job by itself. Stopping one deletes all pods that
have not ended in its eyes, and with them the logs that say why the job failed."""


def decide(observation: Observation, status: GpuJobStatus) -> Decision:
    """Clear up, and delete the GPUJob when its time to live is over."""
    finished_at = times.read(status.finished_at) if status.finished_at else observation.now
    ttl = observation.job.spec.ttl_seconds_after_finished
    over = None if ttl is None else times.after(finished_at, ttl)
    if over is not None and over <= observation.now:
        return Decision(status=status, actions=(DeleteGpuJob(),))
    last = names.job_name(observation.job.metadata.name, attempt=status.attempt)
    earlier = [job for job in observation.jobs if job.metadata.name != last]
    actions = tuple(action for job in earlier for action in deletion(job))
    if all(_at_rest(job) for job in observation.jobs if job not in earlier):
        return Decision(status=status, actions=actions, again_at=over)
    stop_at = times.after(finished_at, CONTROLLER_SECONDS)
    if stop_at <= observation.now:
        actions = (*actions, StopJob(name=last))
        return Decision(status=status, actions=actions, again_at=over)
    return Decision(status=status, actions=actions, again_at=times.earliest(over, stop_at))


def deletion(job: Job) -> tuple[Action, ...]:
    """Delete a Job, unless that is under way."""
    if job.metadata.deletion_timestamp is not None:
        return ()
    return (DeleteJob(name=job.metadata.name, uid=job.metadata.uid),)


def _at_rest(job: Job) -> bool:
    over = any(found.type in ENDS and found.status == "True" for found in job.status.conditions)
    return over or job.spec.suspend or job.metadata.deletion_timestamp is not None
