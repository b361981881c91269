# SPDX-License-Identifier: Apache-2.0
"""The interface of a backend: the cluster's (cluster.backend) or this machine's (host.backend)."""

import threading
from dataclasses import dataclass, field
from typing import Protocol

from gpupack.allocation import Allocation
from gpupack.jobs import Jobs
from gpupack.training_config import TrainingGPUConfig
from gpupack.views import ClusterStatus, GPUResourceStatus, Validation
from gpupack_restapi.allocations import Workload


@dataclass(frozen=True, slots=True)
class Patience:
    """The limits of an allocation's wait.

    Attributes:
        timeout_seconds: maximum wait; 0: no wait.
        hold_seconds: when the cluster ends the allocation; this machine holds until the process
            ends.
        stop: ends the wait when another thread sets it.
    """

    timeout_seconds: float
    hold_seconds: int
    stop: threading.Event = field(default_factory=threading.Event)


class Backend(Protocol):
    """A source of GPUs. Calls may come from several threads."""

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
        """Return what is free and what is allocated."""

    def nodes(self, *, gpu_type: str = "", min_memory_gb: float = 0) -> list[GPUResourceStatus]:
        """Return nodes with a GPU of this model and at least this memory, free or not."""

    def validate(self, config: TrainingGPUConfig) -> Validation:
        """Return whether the request can be satisfied; hold nothing."""

    def allocate(self, config: TrainingGPUConfig, patience: Patience) -> Allocation:
        """Hold GPUs.

        Raises:
            NotEnoughGpus: they were not free in time; nothing is held.
        """

    def release(self, allocation_id: str) -> None:
        """Release an allocation of this process.

        Raises:
            NothingHeld: there is no such allocation.
        """

    def run(self, allocation_id: str, workload: Workload) -> None:
        """Run a program on the GPUs of an allocation, in place of the program that holds them.

        Raises:
            Unsupported: on this machine the caller's process runs the program itself.
        """

    def close(self) -> None:
        """Release what is held on this machine, and close all connections."""
