# SPDX-License-Identifier: Apache-2.0
"""A new revision of an existing GPUJob, with another program on the same GPUs."""

from http import HTTPStatus
from typing import Final

from gpupack_cli.errors import InputInvalid, ObjectNotFound
from gpupack_cli.job_manifest import owner_patch
from gpupack_crds.gpujob_status import ENDED_PHASES
from gpupack_crds.kinds import GPUJOBS, GpuJob
from gpupack_crds.lifecycle import WHOLE_JOBS, WholeJob
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import Conflict, NotFound, Refused
from gpupack_kubeclient.objects import Json
from gpupack_kubeclient.resources import CONFIG_MAPS

MAX_TRIES: Final = 5
"""More than one try is needed because the operator writes the same object."""


async def revise(api: Api, name: str, manifest: Json, config: Json | None) -> GpuJob:
    """Make the job run the manifest's template; the job owns the scripts.

    Raises:
        ObjectNotFound: there is no such job.
        InputInvalid: it has ended.
        KubeError: the API server refuses it; nothing is left behind.
    """
    namespace, template = manifest["metadata"]["namespace"], manifest["spec"]["template"]
    job = await _get_unfinished(api, name, namespace)
    scripts = None
    if config is not None:
        owner = owner_patch({"metadata": {"name": name, "uid": job.metadata.uid}})
        config["metadata"] |= owner["metadata"]
        scripts = (await api.create(CONFIG_MAPS, config, namespace=namespace)).metadata
    try:
        return await _write(api, job, template)
    except Refused as error:
        # After any other error it may have been written; then the scripts remain with the job.
        if scripts is not None and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            await api.delete(CONFIG_MAPS, scripts.name, namespace=namespace, uid=scripts.uid)
        raise


async def _write(api: Api, job: WholeJob, template: Json) -> GpuJob:
    (namespace, name), uid, tries = job.key, job.metadata.uid, MAX_TRIES
    while True:
        tries -= 1
        spec: Json = {
            "revision": job.spec.get("revision", 0) + 1,
            "workload": None,
            "template": _merge_patch(job.spec.get("template", {}), template),
        }
        of_version = {"uid": uid, "resourceVersion": job.metadata.resource_version}
        patch = {"metadata": of_version, "spec": spec}
        try:
            return await api.merge(GPUJOBS, name, patch, namespace=namespace)
        except Conflict:
            if not tries:
                raise
        job = await _get_unfinished(api, name, namespace)
        if job.metadata.uid != uid:
            raise ObjectNotFound(f"GPUJob {namespace}/{name} was replaced by another one")


async def _get_unfinished(api: Api, name: str, namespace: str) -> WholeJob:
    try:
        job = await api.get(WHOLE_JOBS, name, namespace=namespace)
    except NotFound as error:
        raise ObjectNotFound(f"there is no GPUJob {namespace}/{name}") from error
    if job.phase in ENDED_PHASES:
        raise InputInvalid(
            f"GPUJob {namespace}/{name} has ended ({job.phase}); submit a new one, or run it again "
            "by `gpupack rerun`"
        )
    return job


def _merge_patch(old: Json, new: Json) -> Json:
    """Return the merge patch that turns one document into the other."""
    both = {
        key: _merge_patch(old[key], value)
        if isinstance(value, dict) and isinstance(old.get(key), dict)
        else value
        for key, value in new.items()
    }
    return dict.fromkeys(old.keys() - new.keys()) | both
