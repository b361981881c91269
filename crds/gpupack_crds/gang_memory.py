# SPDX-License-Identifier: Apache-2.0
"""Gangs that have one /dev/shm on a node although each worker has its own pod.

The operator sets NCCL's variables by this rule, and the scheduler writes the gang's name into the
Binding of each of its pods. The agent gives one memory to pods with the same gang name.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from gpupack_crds import names
from gpupack_crds.worker_pods import WorkerPod


class MemorySpec(Protocol):
    """The fields of a spec that decide about gang memory."""

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
        """Number of workers that may run in addition to those that start together."""

    @property
    def resource_name(self) -> str:
        """Name of the resource with which the GPUs are requested."""


def has_gang_memory(spec: MemorySpec, pods: Iterable[WorkerPod]) -> bool:
    """Tell whether pods of an attempt that are on one node have one /dev/shm.

    Workers with several GPUs use sockets: the setting that lets NCCL pass data through memory would
    disable NVLink between the GPUs of one worker.
    """
    on_node = Counter(pod.node for pod in pods)
    one_gpu_each = spec.gpus == 1 and spec.mig is None and spec.share is None
    # The agent mounts the memory, only for GPUs that it hands out itself.
    is_ours = spec.resource_name == names.GPU
    return one_gpu_each and is_ours and not spec.extra and max(on_node.values(), default=0) > 1


def gang_name(job_uid: str, *, attempt: int) -> str:
    """Return a gang's name, as in the annotation and in NCCL's host name."""
    return f"{job_uid}/{attempt}"
