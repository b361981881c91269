# SPDX-License-Identifier: Apache-2.0
"""What a backend does: the cluster's (cluster.backend) or this machine's (host.backend)."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpupack.allocation import Allocation
from gpupack.jobs import Jobs
from gpupack.training_config import TrainingGPUConfig
from gpupack.views import ClusterStatus, GPUResourceStatus, Validation


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an allocation is waited for.

    Attributes:
        timeout_seconds: 0: not at all.
        hold_seconds: after which the cluster ends it; this machine holds until the process ends.
        stop: set from another thread it ends the waiting.
    """

    timeout_seconds: float
    hold_seconds: int
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Workload:
    """A program for the workers of an allocation.

    Attributes:
        image: container image that holds it.
        command: with its arguments.
        environment: further variables.
        non_root: whether the pods say that the image's user is not root.
    """

    image: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    non_root: bool = False


class Backend(Protocol):
    """Where GPUs come from. Its calls may be made from several threads."""

    @property
    def name(self) -> str:
        """`cluster` or `this-machine`."""

    @property
    def jobs(self) -> Jobs:
        """GPUJobs of the cluster.

        Raises:
            Unsupported: this machine has none.
        """

    def status(self) -> ClusterStatus:
        """What is free and what is given out."""

    def nodes(self, *, gpu_type: str = "", min_memory_gb: float = 0) -> list[GPUResourceStatus]:
        """Nodes that have a GPU of this model with so much memory, given out or not."""

    def validate(self, config: TrainingGPUConfig) -> Validation:
        """Whether it can be served; nothing is held."""

    def allocate(self, config: TrainingGPUConfig, patience: Patience) -> Allocation:
        """Hold GPUs.

        Raises:
            NotEnoughGpus: they were not free in time; nothing is held.
        """

    def release(self, allocation_id: str) -> None:
        """Give back what this process holds.

        Raises:
            NothingHeld: there is no such allocation.
        """

    def run(self, allocation_id: str, workload: Workload) -> None:
        """Have a program run on the GPUs of an allocation, instead of what holds them.

        Raises:
            Unsupported: a process of this machine runs it itself.
        """

    def close(self) -> None:
        """Give back what is held on this machine, and close what is open."""
