# SPDX-License-Identifier: Apache-2.0
"""Jobs of the workers of an attempt that start together: one Job, or one for each pod."""

import dataclasses

from gpupack_crds.kinds import GpuJob
from gpupack_crds.placement import by_worker, nodes_of
from gpupack_crds.worker_pods import WorkerPod, pods_of
from gpupack_kubeclient.objects import Json
from gpupack_operator.decision.gang_jobs import shared_pods
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.decision.planned_pods import planned_pods
from gpupack_operator.manifests import mpi, pod
from gpupack_operator.manifests.gang_memory import with_gang_memory
from gpupack_operator.manifests.job import job as job_manifest
from gpupack_operator.manifests.job import job_of_pod, worker_job
from gpupack_operator.manifests.provisioning import with_provisioned_nodes
from gpupack_operator.manifests.result_bytes import injected_containers, with_result_bytes
from gpupack_operator.manifests.worker_kind import WorkerKind


@dataclasses.dataclass(frozen=True, slots=True)
class GangAttempt:
    """An attempt whose placement is in the status.

    Attributes:
        job: the GPUJob.
        user: the GPUJob's template as written.
        number: the attempt's number.
        deadline_seconds: time left until the deadline; None: there is no deadline.
        kinds: the job's roles.
    """

    job: GpuJob
    user: Json
    number: int
    deadline_seconds: int | None = None
    kinds: tuple[WorkerKind, ...] = ()


def jobs_of_gang(
    attempt: GangAttempt, defaults: pod.PodDefaults, provisioning: Provisioning | None
) -> list[Json]:
    """Make the Jobs of the gang.

    Raises:
        TemplateInvalid: the user's template cannot be merged over gpupack's.
    """
    if attempt.job.spec.roles:
        return _jobs_of_roles(attempt, defaults)
    made = pod.template(attempt.job, attempt.user, attempt=attempt.number, defaults=defaults)
    template = _of_gang(attempt, made, provisioning)
    shared = shared_pods(attempt.job, attempt.job.status)
    if shared:
        return [_job_of_pod(attempt, template, each) for each in shared]
    return [_job(attempt, template)]


def _jobs_of_roles(attempt: GangAttempt, defaults: pod.PodDefaults) -> list[Json]:
    """Make the Jobs of a gang with roles: pods of a Job are alike, so each worker has its own."""
    nodes = {each.worker: each.node for each in by_worker(attempt.job.status.placement)}
    made: list[Json] = []
    planned = planned_pods(attempt.job.status)
    for kind in attempt.kinds:
        template = pod.template(
            kind.job, kind.user, attempt=attempt.number, defaults=defaults, role=kind.role
        )
        injected = injected_containers(template["spec"], planned.get(kind.name))
        container = pod.worker_container(kind.job, kind.user)
        spec = with_result_bytes(template["spec"], {container}, injected=injected)
        made += [
            worker_job(
                kind,
                template | {"spec": spec},
                attempt=attempt.number,
                worker=worker,
                node=nodes[worker],
                deadline_seconds=attempt.deadline_seconds,
            )
            for worker in range(kind.first, kind.first + (kind.role.workers if kind.role else 0))
        ]
    return made


def largest_pod(attempt: GangAttempt, template: Json, provisioning: Provisioning | None) -> Json:
    """Make the shared pod with the most workers, without the random suffix of its name.

    Args:
        attempt: the attempt.
        template: pod template of one worker, the user's merged over gpupack's.
        provisioning: how nodes are requested; None: they are not.
    """
    shared = shared_pods(attempt.job, attempt.job.status)
    most = max(shared, key=lambda each: len(each.workers))
    made = _job_of_pod(attempt, _of_gang(attempt, template, provisioning), most)
    found, namespace = made["spec"]["template"], attempt.job.metadata.namespace
    metadata = found["metadata"] | {"name": made["metadata"]["name"], "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": found["spec"]}


def _of_gang(attempt: GangAttempt, template: Json, provisioning: Provisioning | None) -> Json:
    """Add to a pod template with one worker what depends on the gang's placement."""
    job, number = attempt.job, attempt.number
    container = pod.worker_container(job, attempt.user)
    if provisioning is not None:
        template = with_provisioned_nodes(template, job, provisioning)
    pods = pods_of(job.status, least=job.spec.least)
    template = with_gang_memory(template, job, pods, attempt=number, container=container)
    if job.spec.by_mpirun:
        template = mpi.with_pods(template, shared_pods(job, job.status), container=container)
    return template


def _job(attempt: GangAttempt, template: Json) -> Json:
    job = attempt.job
    container = pod.worker_container(job, attempt.user)
    injected = injected_containers(template["spec"], job.status.planned_pod)
    spec = with_result_bytes(template["spec"], {container}, injected=injected)
    return job_manifest(
        job,
        template | {"spec": spec},
        attempt=attempt.number,
        nodes=nodes_of(job.status.placement),
        deadline_seconds=attempt.deadline_seconds,
    )


def _job_of_pod(attempt: GangAttempt, template: Json, shared: WorkerPod) -> Json:
    return job_of_pod(
        attempt.job,
        template,
        shared,
        attempt=attempt.number,
        container=pod.worker_container(attempt.job, attempt.user),
        deadline_seconds=attempt.deadline_seconds,
    )
