# SPDX-License-Identifier: Apache-2.0
"""Which workers of an attempt share a pod: those of one node that start together.

NCCL, gloo and MPI reach a peer through memory or NVLink only within one network and IPC namespace,
so within one pod. Every part computes the pods from the placement, and nothing else says it.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from gpupack_crds.devices import DeviceShare
from gpupack_crds.placement import NodePlacement, WorkerPlacement, by_worker


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerPod:
    """A pod of an attempt, and the workers that run in it.

    Attributes:
        node: name of its node.
        workers: their indices, ascending.
        devices: their GPUs, in the order of the workers, as many of each; empty where another
            device plugin chooses them.
    """

    node: str
    workers: tuple[int, ...]
    devices: tuple[DeviceShare, ...] = ()

    @property
    def index(self) -> int:
        """Index of its first worker, which identifies the pod."""
        return self.workers[0]


def worker_pods(
    placement: Iterable[NodePlacement], *, shares: bool, least: int
) -> tuple[WorkerPod, ...]:
    """Compute the pods of a placement, in the order of their first workers.

    Args:
        placement: as the status has it.
        shares: whether workers share pods (`GpuJobSpec.shares_pods`).
        least: workers below this index start together; each other one has a pod to itself.
    """
    by_node: dict[tuple[str, int], list[WorkerPlacement]] = defaultdict(list)
    for each in by_worker(placement):
        alone = not shares or each.worker >= least
        by_node[(each.node, each.worker if alone else -1)].append(each)
    pods = [_pod(node, workers) for (node, _), workers in by_node.items()]
    return tuple(sorted(pods, key=lambda pod: pod.index))


class SharingSpec(Protocol):
    """What the pods of a GPUJob depend on, as each part reads it from the spec."""

    @property
    def shares_pods(self) -> bool:
        """Whether workers that are on one node share a pod."""

    @property
    def least(self) -> int:
        """Number of workers that start together."""


def pods_of(spec: SharingSpec, placement: Iterable[NodePlacement]) -> tuple[WorkerPod, ...]:
    """Compute the pods of a GPUJob's placement."""
    return worker_pods(placement, shares=spec.shares_pods, least=spec.least)


def are_shared(pods: Iterable[WorkerPod]) -> bool:
    """Tell whether any pod has several workers; then each pod of the gang has its own Job."""
    return any(len(pod.workers) > 1 for pod in pods)


def _pod(node: str, workers: Sequence[WorkerPlacement]) -> WorkerPod:
    return WorkerPod(
        node=node,
        workers=tuple(each.worker for each in workers),
        devices=tuple(device for each in workers for device in each.devices),
    )
