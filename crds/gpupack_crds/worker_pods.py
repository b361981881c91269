# SPDX-License-Identifier: Apache-2.0
"""The workers of an attempt that share a pod: those of one node that start together.

NCCL, gloo and MPI reach a peer through memory or NVLink only within one network and IPC namespace,
so within one pod. Every component computes the pods from the status: from the placement and from
the attempt's entry, which the operator writes together. The spec does not decide alone: the meaning
of an absent podPerWorker depends on the template and on earlier attempts.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from gpupack_crds.devices import DeviceShare
from gpupack_crds.placement import NodePlacement, WorkerPlacement, by_worker


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerPod:
    """A pod of an attempt with its workers.

    Attributes:
        node: name of its node.
        workers: indices of the workers, ascending.
        devices: GPUs of the workers, in their order, as many for each; empty where another device
            plugin chooses them.
    """

    node: str
    workers: tuple[int, ...]
    devices: tuple[DeviceShare, ...] = ()

    @property
    def index(self) -> int:
        """Index of its first worker, which identifies the pod."""
        return self.workers[0]

    def worker_with(self, uuid: str) -> int:
        """Find the worker that has a device; the first one where the placement does not name it."""
        last, each = len(self.workers) - 1, max(len(self.devices) // len(self.workers), 1)
        places = (place for place, share in enumerate(self.devices) if share.uuid == uuid)
        return next((self.workers[min(place // each, last)] for place in places), self.index)


def worker_pods(
    placement: Iterable[NodePlacement], *, shares: bool, least: int
) -> tuple[WorkerPod, ...]:
    """Compute the pods of a placement, in the order of their first workers.

    Args:
        placement: the placement from the status.
        shares: whether workers share pods (`shares_pods`).
        least: workers below this index start together; each other one has its own pod.
    """
    by_node: dict[tuple[str, int], list[WorkerPlacement]] = defaultdict(list)
    for each in by_worker(placement):
        alone = not shares or each.worker >= least
        by_node[(each.node, each.worker if alone else -1)].append(each)
    pods = [_pod(node, workers) for (node, _), workers in by_node.items()]
    return tuple(sorted(pods, key=lambda pod: pod.index))


class PlacedAttempt(Protocol):
    """An attempt as a component reads it from the status."""

    @property
    def shares_pods(self) -> Any:
        """Whether workers share pods; only True means that they do."""


class PlacedStatus(Protocol):
    """A status as a component reads it."""

    @property
    def placement(self) -> Iterable[NodePlacement]:
        """The places of the last attempt's workers."""

    @property
    def attempts(self) -> Sequence[PlacedAttempt]:
        """The attempts, newest last."""


def shares_pods(status: PlacedStatus) -> bool:
    """Tell whether workers of the last attempt share pods where they are on one node."""
    return bool(status.attempts) and says_shared(status.attempts[-1])


def says_shared(attempt: PlacedAttempt) -> bool:
    """Tell whether workers of this attempt share pods; any other value than True says no."""
    return attempt.shares_pods is True


def pods_of(status: PlacedStatus, *, least: int) -> tuple[WorkerPod, ...]:
    """Compute the pods of a GPUJob's placement; `least` workers start together."""
    return worker_pods(status.placement, shares=shares_pods(status), least=least)


def are_shared(pods: Iterable[WorkerPod]) -> bool:
    """Tell whether any pod has several workers; then each pod of the gang has its own Job."""
    return any(len(pod.workers) > 1 for pod in pods)


def _pod(node: str, workers: Sequence[WorkerPlacement]) -> WorkerPod:
    return WorkerPod(
        node=node,
        workers=tuple(each.worker for each in workers),
        devices=tuple(device for each in workers for device in each.devices),
    )
