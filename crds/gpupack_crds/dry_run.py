# SPDX-License-Identifier: Apache-2.0
"""A GPUJob as the API server would store it, from a dry run."""

from typing import Final

import msgspec

from gpupack_crds import names
from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.objects import Json
from gpupack_kubeclient.resources import Resource

PREFIX: Final = "what-if-"
"""Prefix from which the API server generates the name."""


class JudgedJob(objects.Object, frozen=True):
    """A GPUJob in the API server's answer, with its spec as written and with defaults."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")


JUDGED_JOBS: Final = Resource(names.API_PREFIX, "gpujobs", JudgedJob)


async def judged(api: Api, spec: Json, *, namespace: str) -> JudgedJob:
    """Return the job that `kubectl apply` would create.

    The caller's permissions, the schema with its rules, and admission are checked as for `kubectl
    apply`.

    Args:
        api: calls with the user's permissions.
        spec: spec of a GPUJob.
        namespace: namespace of the job.

    Raises:
        KubeError: the API server refuses it, or gave no answer.
    """
    manifest = {
        "apiVersion": names.API_VERSION,
        "kind": "GPUJob",
        "metadata": {"generateName": PREFIX},
        "spec": spec,
    }
    return await api.create(JUDGED_JOBS, manifest, namespace=namespace, dry_run=True, strict=True)
