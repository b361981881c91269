# SPDX-License-Identifier: Apache-2.0
"""What the watches do not show of the current attempt: is it really missing?

Watches lag behind, each by itself. A Job that is missing would be created again, and a job whose
pods are missing when it completed would run again: so both are read from the API server first.
"""

import logging

from gpupack_crds import indices, names
from gpupack_crds.kinds import GpuJob
from gpupack_kube import client, errors, listing
from gpupack_kube.client import Api
from gpupack_kube.objects import Job, Pod
from gpupack_kube.resources import JOBS, PODS
from gpupack_operator.decision import attempts
from gpupack_operator.manifests.owner import index_of, is_controlled_by, is_ours, is_worker

log = logging.getLogger(__name__)


async def overlooked_job(api: Api, job: GpuJob, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """The current attempt's Job, where the watch does not show it."""
    name = _current(job)
    if name is None or any(found.metadata.name == name for found in jobs):
        return ()
    try:
        found = await api.get(JOBS, name, namespace=job.metadata.namespace)
    except errors.NotFound:
        return ()
    return (found,) if is_ours(found, job) else ()


async def overlooked_pods(
    api: Api, job: GpuJob, jobs: tuple[Job, ...], pods: tuple[Pod, ...]
) -> tuple[Pod, ...]:
    """Pods of the current attempt's Job, where it is complete and the watch lacks some."""
    name = _current(job)
    current = next((found for found in jobs if found.metadata.name == name), None)
    if current is None or not _is_complete(current):
        return ()
    shown = {index_of(pod) for pod in pods if is_controlled_by(pod, current)}
    ended = job.status.ended_workers
    if ended is not None:
        shown.update(indices.read(ended.succeeded), indices.read(ended.ignored))
    if shown.issuperset(range(job.spec.least)):
        return ()
    known = {pod.metadata.uid for pod in pods}
    found = await _pods_of(api, job)
    return tuple(p for p in found if p.metadata.uid not in known and is_worker(p, job, jobs))


async def _pods_of(api: Api, job: GpuJob) -> list[Pod]:
    meta = job.metadata
    selectors = {"labelSelector": f"{names.JOB_UID_LABEL}={meta.uid}"}
    found: list[Pod] = []
    async for page in listing.pages(api, PODS, namespace=meta.namespace, selectors=selectors):
        for raw in page.items:
            try:
                found.append(client.read(raw, PODS))
            except errors.KubeError as error:
                log.warning("%s/%s: a pod of it cannot be read: %s", *job.key, error)
    return found


def _current(job: GpuJob) -> str | None:
    """The name of the current attempt's Job."""
    attempt = attempts.current(job.status)
    return names.job_name(job.metadata.name, attempt=attempt.number) if attempt else None


def _is_complete(job: Job) -> bool:
    return any(each.type == "Complete" and each.status == "True" for each in job.status.conditions)
