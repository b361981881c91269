# SPDX-License-Identifier: Apache-2.0
"""Jobs of an attempt's workers that start together: one Job, or one for each pod.

Pods of a Job are all alike, so workers of several roles have a Job each, as shared pods have.
"""

import dataclasses
from collections.abc import Mapping

from gpupack_crds import names
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.kinds import GpuJob
from gpupack_crds.worker_pods import WorkerPod, are_shared, pods_of


@dataclasses.dataclass(frozen=True, slots=True)
class JobWorkers:
    """Workers of a Job.

    Attributes:
        indices: the workers' indices, ascending.
        in_one_pod: whether the Job's one pod has all of them; else each has its own pod.
        is_of_pod: whether the Job has one pod, and the gang a Job for each pod.
    """

    indices: tuple[int, ...]
    in_one_pod: bool = False
    is_of_pod: bool = False


GangJobs = Mapping[str, JobWorkers]
"""Workers by name of the Job."""


def gang_jobs(job: GpuJob, status: GpuJobStatus, *, attempt: int) -> GangJobs:
    """Compute the Jobs' workers from the placement."""
    name, shared = job.metadata.name, shared_pods(job, status)
    if job.spec.roles:
        return {
            names.pod_job_name(name, attempt=attempt, worker=worker): JobWorkers(
                (worker,), is_of_pod=True
            )
            for worker in range(job.spec.least)
        }
    if not shared:
        return {names.job_name(name, attempt=attempt): JobWorkers(tuple(range(job.spec.least)))}
    return {
        names.pod_job_name(name, attempt=attempt, worker=pod.index): JobWorkers(
            pod.workers, in_one_pod=True, is_of_pod=True
        )
        for pod in shared
    }


def shared_pods(job: GpuJob, status: GpuJobStatus) -> tuple[WorkerPod, ...]:
    """Compute the shared pods of the workers that start together; empty: each has its own pod."""
    pods = pods_of(status, least=job.spec.least)
    gang = tuple(pod for pod in pods if pod.index < job.spec.least)
    return gang if are_shared(gang) else ()
