# SPDX-License-Identifier: Apache-2.0
"""A GPUJob as the API server would store it: judged by it, and stored nowhere."""

from typing import Final

import msgspec

from gpupack_crds import names
from gpupack_kube import objects
from gpupack_kube.client import Api
from gpupack_kube.objects import Json
from gpupack_kube.resources import Resource

PREFIX: Final = "what-if-"
"""The API server makes a name of it."""


class JudgedJob(objects.Object, frozen=True):
    """As the API server answers; its spec as it was written, with defaults."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")


JUDGED_JOBS: Final = Resource(names.API_PREFIX, "gpujobs", JudgedJob)


async def judged(api: Api, spec: Json, *, namespace: str) -> JudgedJob:
    """Return the job that `kubectl apply` would make.

    The caller's rights, the schema and its rules, and admission are judged where they are for
    `kubectl apply`.

    Args:
        api: calls as the user that asks.
        spec: of a GPUJob.
        namespace: where it would be.

    Raises:
        KubeError: it is refused, or the API server gave no answer.
    """
    manifest = {
        "apiVersion": names.API_VERSION,
        "kind": "GPUJob",
        "metadata": {"generateName": PREFIX},
        "spec": spec,
    }
    return await api.create(JUDGED_JOBS, manifest, namespace=namespace, dry_run=True, strict=True)
