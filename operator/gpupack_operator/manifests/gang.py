# SPDX-License-Identifier: Apache-2.0
"""The Jobs of the workers of an attempt that start together: one, or one for each pod."""

import dataclasses

from gpupack_crds.kinds import GpuJob
from gpupack_crds.placement import nodes_of
from gpupack_crds.worker_pods import pods_of
from gpupack_kube.objects import Json
from gpupack_operator.decision.gang_jobs import shared_pods
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.manifests import mpi, pod
from gpupack_operator.manifests.gang_memory import with_gang_memory
from gpupack_operator.manifests.job import job as job_manifest
from gpupack_operator.manifests.job import job_of_pod
from gpupack_operator.manifests.provisioning import consuming
from gpupack_operator.manifests.result_bytes import injected_containers, with_result_bytes


@dataclasses.dataclass(frozen=True, slots=True)
class GangAttempt:
    """An attempt whose places stand in the status.

    Attributes:
        job: the GPUJob.
        user: its template as written.
        number: of the attempt.
        deadline_seconds: what is left of the deadline; None: there is none.
    """

    job: GpuJob
    user: Json
    number: int
    deadline_seconds: int | None = None


def jobs_of_gang(
    attempt: GangAttempt, defaults: pod.PodDefaults, provisioning: Provisioning | None
) -> list[Json]:
    """Make the Jobs.

    Raises:
        TemplateInvalid: the user's template cannot be merged over ours.
    """
    job, number = attempt.job, attempt.number
    template = pod.template(job, attempt.user, attempt=number, defaults=defaults)
    container = pod.worker_container(job, attempt.user)
    injected = injected_containers(template["spec"], job.status.planned_pod)
    spec = with_result_bytes(template["spec"], {container}, injected=injected)
    template = template | {"spec": spec}
    if provisioning is not None:
        template = consuming(template, job, provisioning)
    pods = pods_of(job.status, least=job.spec.least)
    template = with_gang_memory(template, job, pods, attempt=number, container=container)
    shared = shared_pods(job, job.status)
    if job.spec.by_mpirun:
        template = mpi.with_pods(template, shared, container=container)
    if not shared:
        return [
            job_manifest(
                job,
                template,
                attempt=number,
                nodes=nodes_of(job.status.placement),
                deadline_seconds=attempt.deadline_seconds,
            )
        ]
    return [
        job_of_pod(
            job,
            template,
            each,
            attempt=number,
            container=container,
            deadline_seconds=attempt.deadline_seconds,
        )
        for each in shared
    ]


def largest_pod(jobs: list[Json], namespace: str) -> Json:
    """Make the pod with the most containers of these Jobs, but for its name's random end."""
    job = max(jobs, key=lambda each: len(each["spec"]["template"]["spec"]["containers"]))
    template = job["spec"]["template"]
    metadata = template["metadata"] | {"name": job["metadata"]["name"], "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
