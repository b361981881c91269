# SPDX-License-Identifier: Apache-2.0
"""Objects of the current attempt that the watches do not show.

Each watch has its own delay. A missing Job would be created again, and a completed job with missing
pods would run again: so both are read from the API server first.
"""

import logging
from typing import TypeVar

from gpupack_crds import indices, names
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient import client, errors, listing
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.objects import Job, Object, Pod
from gpupack_kubeclient.resources import JOBS, PODS, Resource
from gpupack_operator.decision import attempts
from gpupack_operator.decision.gang_jobs import GangJobs, JobWorkers, gang_jobs
from gpupack_operator.decision.view import condition_of
from gpupack_operator.manifests.owner import index_of, is_controlled_by, is_ours, is_worker

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)


async def find_unwatched_jobs(api: Api, job: GpuJob, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Return the current attempt's Jobs that the watch does not show."""
    shown = {found.metadata.name for found in jobs}
    missing = sorted(_current(job).keys() - shown)
    if not missing:
        return ()
    few = len(missing) == 1
    there = await _get_job(api, job, missing[0]) if few else await _list_objects(api, job, JOBS)
    return tuple(each for each in there if each.metadata.name in missing and is_ours(each, job))


async def find_unwatched_pods(
    api: Api, job: GpuJob, jobs: tuple[Job, ...], pods: tuple[Pod, ...]
) -> tuple[Pod, ...]:
    """Return pods of the current attempt's Jobs, if one is complete and the watch lacks some."""
    current = _current(job)
    complete = [each for each in jobs if each.metadata.name in current and _is_complete(each)]
    ended = _ended(job)
    if all(_shows_all(each, current[each.metadata.name], pods, ended) for each in complete):
        return ()
    known = {pod.metadata.uid for pod in pods}
    found = await _list_objects(api, job, PODS)
    return tuple(p for p in found if p.metadata.uid not in known and is_worker(p, job, jobs))


def _shows_all(job: Job, of: JobWorkers, pods: tuple[Pod, ...], ended: frozenset[int]) -> bool:
    """Tell whether each worker of a Job has a pod, or has ended according to the status."""
    shown = {index_of(pod) for pod in pods if is_controlled_by(pod, job)}
    if of.in_one_pod and of.indices[0] in shown:
        return True
    return (shown | ended).issuperset(of.indices)


def _ended(job: GpuJob) -> frozenset[int]:
    ended = job.status.ended_workers
    if ended is None:
        return frozenset()
    return frozenset([*indices.read(ended.succeeded), *indices.read(ended.ignored)])


async def _get_job(api: Api, job: GpuJob, name: str) -> list[Job]:
    try:
        return [await api.get(JOBS, name, namespace=job.metadata.namespace)]
    except errors.NotFound:
        return []


async def _list_objects(api: Api, job: GpuJob, resource: Resource[T]) -> list[T]:
    meta = job.metadata
    selectors = {"labelSelector": f"{names.JOB_UID_LABEL}={meta.uid}"}
    found: list[T] = []
    async for page in listing.pages(api, resource, namespace=meta.namespace, selectors=selectors):
        for raw in page.items:
            try:
                found.append(client.read(raw, resource))
            except errors.KubeError as error:
                log.warning("%s/%s: one of %s cannot be read: %s", *job.key, resource.plural, error)
    return found


def _current(job: GpuJob) -> GangJobs:
    """Return the Jobs of the current attempt, by name."""
    attempt = attempts.current(job.status)
    return gang_jobs(job, job.status, attempt=attempt.number) if attempt else {}


def _is_complete(job: Job) -> bool:
    return condition_of(job, "Complete") is not None
