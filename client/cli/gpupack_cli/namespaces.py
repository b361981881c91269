# SPDX-License-Identifier: Apache-2.0
"""Checks that a namespace exists, which an empty list does not show."""

from typing import Final

from gpupack_cli.errors import ObjectNotFound
from gpupack_crds.kinds import GPUJOBS, GpuJob
from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import KubeError, NotFound
from gpupack_kubeclient.resources import Resource

NAMESPACES: Final = Resource("/api/v1", "namespaces", objects.Object)


async def require_namespace(api: Api, namespace: str) -> None:
    """Do nothing where the namespace exists, is empty, or may not be read by the caller.

    Raises:
        ObjectNotFound: it does not exist.
    """
    if not namespace:
        return
    try:
        await api.get(NAMESPACES, namespace)
    except NotFound as error:
        raise ObjectNotFound(
            f"namespace {namespace!r} does not exist; `kubectl get namespaces` lists them"
        ) from error
    except KubeError:
        return


async def get_job(api: Api, name: str, namespace: str) -> GpuJob:
    """Read a GPUJob.

    Raises:
        ObjectNotFound: its namespace does not exist.
        KubeError: it does not exist, or may not be read.
    """
    try:
        return await api.get(GPUJOBS, name, namespace=namespace)
    except NotFound:
        await require_namespace(api, namespace)
        raise
