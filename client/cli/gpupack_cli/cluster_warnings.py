# SPDX-License-Identifier: Apache-2.0
"""Warnings about a job on the cluster's GPUs.

They cover a model that no GPU has, a share whose memory allows fewer on a GPU than its percent, and
a PriorityClass that does not exist or preempts pods.

The job's status has the same warning while it waits. It is no reason to refuse a job: nodes with
such GPUs, or the class, may be added.
"""

from collections.abc import Iterable, Iterator

from gpupack_cli import figures
from gpupack_cli.listing import list_objects
from gpupack_cli.notes import note
from gpupack_crds.gpujob import GpuJobSpec
from gpupack_crds.kinds import GPUNODES
from gpupack_crds.priority import PriorityProblem, priority_of
from gpupack_devices.models import matches_model, nearest_models
from gpupack_devices.units import MiB
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import KubeError, NotFound
from gpupack_kubeclient.resources import PRIORITY_CLASSES

WHOLE_PERCENT = 100

Gpu = tuple[str, int]
"""Model, and memory in MiB."""


async def print_warnings(api: Api, spec: GpuJobSpec) -> None:
    """Print warnings; none without permission to read their objects."""
    await _warn_of_class(api, spec)
    kinds = [spec.of_role(role) for role in spec.roles] or [spec]
    if all(not each.gpu_models and each.share is None for each in kinds):
        return
    try:
        nodes = await list_objects(api, GPUNODES)
    except KubeError:
        return
    gpus = {(each.model, each.memory_mib) for node in nodes for each in node.status.devices}
    for text in dict.fromkeys(text for each in kinds for text in warnings(each, gpus)):
        note(f"warning: {text}")


async def _warn_of_class(api: Api, spec: GpuJobSpec) -> None:
    name, found = spec.priority_class_name, None
    if not name:
        return
    try:
        found = await api.get(PRIORITY_CLASSES, name)
    except NotFound:
        pass
    except KubeError:
        return
    if isinstance(problem := priority_of(name, found), PriorityProblem):
        note(f"warning: {problem.message}; the job waits until then")


def warnings(spec: GpuJobSpec, gpus: Iterable[Gpu]) -> Iterator[str]:
    """Yield warnings about a job on these GPUs, as sentences."""
    gpus_found = sorted((model, MiB(memory)) for model, memory in gpus)
    if not gpus_found:
        return
    fitting = [
        gpu
        for gpu in gpus_found
        if not spec.gpu_models or any(matches_model(each, *gpu) for each in spec.gpu_models)
    ]
    if not fitting:
        nearest = ", ".join(nearest_models(spec.gpu_models, gpus_found))
        wanted = " or ".join(spec.gpu_models)
        yield (f"no GPU of the cluster is of model {wanted} (nearest: {nearest}); the job waits")
    if spec.share is not None:
        yield from _limited_by_memory(spec.share.percent, spec.share.memory, fitting)


def _limited_by_memory(percent: int, memory: str, gpus: Iterable[Gpu]) -> Iterator[str]:
    from gpupack_crds.quantity import mebibytes  # noqa: PLC0415 - as above

    request_mib, by_percent = mebibytes(memory), WHOLE_PERCENT // percent
    for model, gpu_mib in gpus:
        by_memory = gpu_mib // request_mib
        if by_memory < by_percent:
            yield (
                f"memory is the limit of this share: one {model} of {figures.memory(gpu_mib)} fits "
                f"{by_memory} with {memory}, and {by_percent} with {percent}%"
            )
