# SPDX-License-Identifier: Apache-2.0
"""Suspend, resume and rerun of a GPUJob, with the caller's permissions.

A job that has ended does not change: its results, attempts and costs are final for every reader. A
rerun is another GPUJob of the same spec, which names the first one (ADR 80).
"""

import contextlib
import hashlib
import re
from typing import Any, Final

from gpupack_crds import names
from gpupack_crds.errors import LifecycleRefused
from gpupack_crds.gpujob_status import ENDED_PHASES
from gpupack_crds.kinds import GPUJOBS, GpuJob, owner_reference
from gpupack_kubeclient import conflicts, objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import AlreadyExists, KubeError, NotFound
from gpupack_kubeclient.objects import ConfigMap, Json
from gpupack_kubeclient.resources import CONFIG_MAPS, Resource

MAX_RERUNS: Final = 100
"""Number of names that are tried for a rerun."""

_NUMBERED: Final = re.compile(r"-rerun-(\d{1,4})$")
_KUBECTL: Final = "kubectl.kubernetes.io/"


class WholeJob(objects.Object, frozen=True):
    """A GPUJob with every field of its spec."""

    spec: Json = {}
    status: Json = {}

    @property
    def phase(self) -> str:
        """The phase in its status."""
        return str(self.status.get("phase", ""))


WHOLE_JOBS: Final = Resource(names.API_PREFIX, "gpujobs", WholeJob)


async def set_suspended(api: Api, name: str, *, namespace: str, suspended: bool) -> WholeJob:
    """Suspend or resume a job; do nothing where it already is so.

    Raises:
        LifecycleRefused: the job has ended.
        KubeError: the API server refuses, or does not answer.
    """

    async def once() -> WholeJob:
        job = await api.get(WHOLE_JOBS, name, namespace=namespace)
        if job.phase in ENDED_PHASES:
            raise LifecycleRefused(
                f"GPUJob {namespace}/{name} has ended ({job.phase}); `gpupack rerun` makes a new "
                "one of the same spec"
            )
        if bool(job.spec.get("suspend")) == suspended:
            return job
        version = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
        patch = {"metadata": version, "spec": {"suspend": suspended}}
        return await api.merge(WHOLE_JOBS, name, patch, namespace=namespace)

    return await conflicts.retried(once)


async def rerun(
    api: Api, name: str, *, namespace: str, new_name: str = "", identity: str = ""
) -> GpuJob:
    """Create a GPUJob of the same spec as one that has ended.

    A job with scripts is suspended until they are copied. After an interruption the same request
    completes the rerun.

    Args:
        api: calls with the caller's permissions.
        name: name of the job that has ended.
        namespace: namespace of both jobs.
        new_name: name of the new job; empty: NAME-rerun-N, the first that is free.
        identity: identity of the request: sent twice, it creates one job; empty: it is sent once.

    Raises:
        LifecycleRefused: the job has not ended, its scripts are gone, or another ConfigMap has the
            new name.
        AlreadyExists: the new name is taken.
        KubeError: the API server refuses, or does not answer.
    """
    old = await api.get(WHOLE_JOBS, name, namespace=namespace)
    if old.phase not in ENDED_PHASES:
        raise LifecycleRefused(
            f"GPUJob {namespace}/{name} has not ended ({old.phase or 'Pending'}); wait for its "
            "end, or raise spec.revision to start it again by another spec"
        )
    scripts = await _scripts(api, old)
    job, is_new = await _create(api, old, new_name, identity)
    if not scripts or not _is_incomplete(job):
        return job
    try:
        for script in scripts:
            await _copy(api, script, job)
        return await _complete(api, job)
    except (KubeError, LifecycleRefused):
        if is_new:
            made = job.metadata
            with contextlib.suppress(KubeError):
                await api.delete(GPUJOBS, made.name, namespace=namespace, uid=made.uid)
        raise


def rerun_names(name: str, identity: str = "") -> list[str]:
    """Return NAME-rerun-N, counted on from the job's own N; with an identity always one name."""
    found = _NUMBERED.search(name)
    first = int(found[1]) + 1 if found else 1
    stem = name[: found.start()] if found else name
    if identity:
        return [_fitting(stem, hashlib.sha256(identity.encode()).hexdigest()[:8])]
    return [_fitting(stem, str(number)) for number in range(first, first + MAX_RERUNS)]


def manifest_of(old: WholeJob, name: str) -> Json:
    """Return the same spec under another name; the job's own scripts get that name, too."""
    spec = {key: value for key, value in old.spec.items() if key not in {"suspend", "revision"}}
    template = spec.get("template")
    if isinstance(template, dict):
        spec["template"] = _with_scripts(template, old.metadata.name, name)
    notes = {names.RERUN_OF_ANNOTATION: old.metadata.name}
    if _mounts_scripts(old):
        spec["suspend"] = True
        notes[names.RERUN_INCOMPLETE_ANNOTATION] = "true"
    kept = {key: value for key, value in old.metadata.labels.items() if _is_users(key)}
    noted = {key: value for key, value in old.metadata.annotations.items() if _is_users(key)}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUJob",
        "metadata": {
            "name": name,
            "namespace": old.metadata.namespace,
            "labels": kept,
            "annotations": noted | notes,
        },
        "spec": spec,
    }


async def _create(api: Api, old: WholeJob, new_name: str, identity: str) -> tuple[GpuJob, bool]:
    """Return the rerun, and whether this request created it."""
    namespace = old.metadata.namespace
    tried = [new_name] if new_name else rerun_names(old.metadata.name, identity)
    for name in tried:
        try:
            return await api.create(GPUJOBS, manifest_of(old, name), namespace=namespace), True
        except AlreadyExists:
            if identity:
                made = await api.get(GPUJOBS, name, namespace=namespace)
                if made.metadata.annotations.get(names.RERUN_OF_ANNOTATION) == old.metadata.name:
                    return made, False
            if name == tried[-1]:
                raise
    raise LifecycleRefused(f"no name is free for a rerun of {namespace}/{old.metadata.name}")


async def _complete(api: Api, made: GpuJob) -> GpuJob:
    """Let a rerun start, unless another request has done so."""
    namespace, name = made.key

    async def once() -> GpuJob:
        job = await api.get(GPUJOBS, name, namespace=namespace)
        if not _is_incomplete(job):
            return job
        version = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
        notes = {names.RERUN_INCOMPLETE_ANNOTATION: None}
        patch = {"metadata": {**version, "annotations": notes}, "spec": {"suspend": False}}
        return await api.merge(GPUJOBS, name, patch, namespace=namespace)

    return await conflicts.retried(once)


def _is_incomplete(job: GpuJob) -> bool:
    return names.RERUN_INCOMPLETE_ANNOTATION in job.metadata.annotations


def _fitting(stem: str, suffix: str) -> str:
    ending = f"-rerun-{suffix}"
    return stem[: names.MAX_JOB_NAME - len(ending)].rstrip("-") + ending


def _is_users(key: str) -> bool:
    """Return whether a user wrote the key: keys of gpupack and kubectl belong to the old object."""
    return not key.startswith((f"{names.GROUP}/", _KUBECTL))


def _with_scripts(template: Json, old: str, new: str) -> Json:
    """Rename the ConfigMap of a job's scripts, to which `gpupack submit` gives the job's name."""
    spec = template.get("spec")
    volumes = spec.get("volumes") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(volumes, list):
        return template
    changed = [_volume(each, old, new) for each in volumes]
    return {**template, "spec": {**spec, "volumes": changed}}


def _volume(volume: Any, old: str, new: str) -> Any:
    source = volume.get("configMap") if isinstance(volume, dict) else None
    if not isinstance(source, dict) or source.get("name") != old:
        return volume
    return {**volume, "configMap": {**source, "name": new}}


async def _scripts(api: Api, old: WholeJob) -> list[ConfigMap]:
    """Return the old job's ConfigMap, where its template mounts one with the job's name.

    Raises:
        LifecycleRefused: the ConfigMap is gone.
    """
    if not _mounts_scripts(old):
        return []
    namespace, name = old.key
    try:
        return [await api.get(CONFIG_MAPS, name, namespace=namespace)]
    except NotFound as error:
        raise LifecycleRefused(
            f"ConfigMap {namespace}/{name} with the scripts of the job is gone; submit it again"
        ) from error


def _mounts_scripts(old: WholeJob) -> bool:
    template = old.spec.get("template")
    return isinstance(template, dict) and _with_scripts(template, old.metadata.name, "") != template


async def _copy(api: Api, scripts: ConfigMap, job: GpuJob) -> None:
    owner = owner_reference(job.metadata.name, job.metadata.uid)
    body: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": job.metadata.name, "ownerReferences": [owner]},
        "data": scripts.data,
        "binaryData": scripts.binary_data,
    }
    namespace, name = job.key
    try:
        await api.create(CONFIG_MAPS, body, namespace=namespace)
    except AlreadyExists as error:
        found = await api.get(CONFIG_MAPS, name, namespace=namespace)
        if job.metadata.uid not in {each.uid for each in found.metadata.owner_references}:
            raise LifecycleRefused(
                f"ConfigMap {namespace}/{name} exists and is not of the new job; choose another "
                "name, or delete it"
            ) from error
