# SPDX-License-Identifier: Apache-2.0
"""One /dev/shm for workers of a gang that run in separate pods on one node.

NCCL passes data between two processes through memory if they have the same host (NCCL_HOSTID) and
the same /dev/shm. The agent gives the pods of such a gang one /dev/shm. These pods cannot use
NVLink between them: its handles travel over sockets of a network namespace or belong to a PID
namespace, so the variables NCCL_P2P_DISABLE and NCCL_CUMEM_ENABLE keep NCCL from trying. For a
worker with several GPUs that would also disable NVLink between its own GPUs, so such workers keep
sockets.

    two pods of one node, 256 MiB all_reduce on 2 H200: sockets 2.5-3.0 GB/s, memory 27.5 GB/s
"""

from collections import Counter
from typing import Final

import msgspec

from gpupack_crds.gang_memory import gang_name, has_gang_memory
from gpupack_crds.kinds import GpuJob
from gpupack_crds.worker_memory import MountingPodSpec, has_shm
from gpupack_crds.worker_pods import WorkerPod
from gpupack_kubeclient.objects import Json
from gpupack_operator.manifests.containers import with_changed, with_default_variables
from gpupack_operator.manifests.shared_pod import scale_shm

NODE: Final = "GPUPACK_NODE"

SHARED_MEMORY: Final = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_CUMEM_HOST_ENABLE": "0",
}


def with_gang_memory(
    template: Json, job: GpuJob, pods: tuple[WorkerPod, ...], *, attempt: int, container: str
) -> Json:
    """Return the template with the settings of shared memory if several pods are on one node.

    Args:
        template: the pods' merged template.
        job: the GPUJob.
        pods: the attempt's pods.
        attempt: the attempt's number.
        container: name of the worker container.
    """
    if not has_gang_memory(job.spec, pods) or not _has_volume(template, container):
        return template
    on_node = max(Counter(pod.node for pod in pods).values())
    gang = gang_name(job.metadata.uid, attempt=attempt)
    made = with_changed(
        template["spec"],
        {container},
        lambda worker: with_default_variables(worker, _settings(gang)),
    )
    volumes = [scale_shm(each, on_node) for each in made["volumes"]]
    return template | {"spec": made | {"volumes": volumes}}


def _has_volume(template: Json, container: str) -> bool:
    """Tell whether the worker has gpupack's tmpfs at /dev/shm, and not a volume of its template."""
    try:
        spec = msgspec.convert(template["spec"], MountingPodSpec)
    except msgspec.ValidationError:
        return False
    return has_shm(spec, {container})


def _settings(gang: str) -> list[Json]:
    node: Json = {"name": NODE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    values = SHARED_MEMORY | {"NCCL_HOSTID": f"$({NODE})/{gang}"}
    return [node, *({"name": name, "value": value} for name, value in values.items())]
