# SPDX-License-Identifier: Apache-2.0
"""Which gangs have one /dev/shm on a node though their workers have a pod each.

The operator sets NCCL's variables by this, and the scheduler names the gang in the Binding of each
of its pods. The agent gives one memory to pods that the scheduler has named alike.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from gpupack_crds import names
from gpupack_crds.worker_pods import WorkerPod


class MemorySpec(Protocol):
    """What it depends on, as each part reads it from the spec."""

    @property
    def gpus(self) -> int | None:
        """Whole GPUs of each worker."""

    @property
    def share(self) -> object | None:
        """Part of a GPU that each worker has."""

    @property
    def mig(self) -> str | None:
        """Profile of the MIG slices of each worker."""

    @property
    def extra(self) -> int:
        """Number of workers that may run besides those that start together."""

    @property
    def resource_name(self) -> str:
        """The resource by which the GPUs are requested."""


def has_gang_memory(spec: MemorySpec, pods: Iterable[WorkerPod]) -> bool:
    """Tell whether pods of an attempt that are on one node have one /dev/shm.

    Workers with several GPUs keep sockets: what lets NCCL pass data through memory would close
    NVLink between the GPUs of one worker.
    """
    on_node = Counter(pod.node for pod in pods)
    one_gpu_each = spec.gpus == 1 and spec.mig is None and spec.share is None
    # The agent mounts the memory, and does so for GPUs that it hands out itself.
    is_ours = spec.resource_name == names.GPU
    return one_gpu_each and is_ours and not spec.extra and max(on_node.values(), default=0) > 1


def gang_name(job_uid: str, *, attempt: int) -> str:
    """Name a gang, as the annotation and NCCL's host name have it."""
    return f"{job_uid}/{attempt}"
