# SPDX-License-Identifier: Apache-2.0
"""The backend `cluster`, on top of the REST API."""

import contextlib
import time
import uuid
from typing import Final

import msgspec

from gpupack.allocation import Allocation
from gpupack.backend import Patience
from gpupack.cluster.calls import Calls
from gpupack.cluster.jobs import ClusterJobs
from gpupack.errors import CallRefused, GpupackError, NotEnoughGpus, Unsupported
from gpupack.training_config import TrainingGPUConfig
from gpupack.views import SIMULATED_UUID
from gpupack_restapi import allocations
from gpupack_restapi.allocations import Allocate, Training, Validation, Workload
from gpupack_restapi.nodes import Nodes, NodeView, Status

PAGE_SIZE: Final = 500
POLL_SECONDS: Final = 1.0
ENDED: Final = frozenset({"Succeeded", "Failed"})


class ClusterBackend:
    """The backend `cluster`, which implements Backend.

    Args:
        calls: calls of the server; they are closed with this object.
        namespace: the namespace whose quota allocations count against; empty: the service account's
            own.
        own_namespace: namespace of jobs where `namespace` is empty; empty: each call names one.
    """

    name: Final = "cluster"

    def __init__(self, calls: Calls, *, namespace: str, own_namespace: str = "") -> None:
        self._calls, self._namespace = calls, namespace
        self.jobs = ClusterJobs(calls, namespace=namespace or own_namespace)

    def status(self) -> Status:
        """Return what is free and what is allocated."""
        return self._calls.get("status", Status)

    def nodes(self, *, gpu_type: str = "", min_memory_gb: float = 0) -> list[NodeView]:
        """Return the nodes that have such a GPU, from all pages."""
        query = {"gpu_type": gpu_type, "min_memory_gb": min_memory_gb, "limit": PAGE_SIZE}
        pages = self._calls.pages("nodes", Nodes, **query)
        return [node for page in pages for node in page.nodes]

    def validate(self, config: TrainingGPUConfig) -> Validation:
        """Return whether the cluster could satisfy the request, without quotas and pending jobs."""
        return self._calls.post("validate", Validation, _training(config))

    def allocate(self, config: TrainingGPUConfig, patience: Patience) -> Allocation:
        """Hold GPUs with a GPUJob that does nothing, until it is released or its time is over."""
        body = Allocate(
            **msgspec.structs.asdict(_training(config)),
            namespace=self._namespace,
            seconds=patience.hold_seconds,
        )
        until = time.monotonic() + patience.timeout_seconds
        made = self._create(body)
        try:
            held = self._wait_until_held(made, config, until, patience)
        except BaseException:
            self._try_release(made.allocation_id)
            raise
        return self._allocation(held, config)

    def release(self, allocation_id: str) -> None:
        """Release an allocation; one that has ended already is no error."""
        self._calls.delete(f"allocations/{allocation_id}")

    def run(self, allocation_id: str, workload: Workload) -> None:
        """Set the program of an allocation; return when that is written.

        The running program is stopped, and the new one starts on the same GPUs.
        """
        path = f"allocations/{allocation_id}/workload"
        self._calls.post(path, allocations.Allocation, workload, key=uuid.uuid4().hex)

    def close(self) -> None:
        """Close the connection to the server; allocations remain held until their time is over."""
        self._calls.close()

    def _create(self, body: Allocate) -> allocations.Allocation:
        """Create an allocation. After an interruption or a lost answer, release it by its key."""
        key = uuid.uuid4().hex
        try:
            return self._calls.post("allocate", allocations.Allocation, body, key=key)
        except CallRefused:
            raise
        except BaseException:
            with contextlib.suppress(GpupackError):
                made = self._calls.post("allocate", allocations.Allocation, body, key=key)
                self.release(made.allocation_id)
            raise

    def _wait_until_held(
        self,
        made: allocations.Allocation,
        config: TrainingGPUConfig,
        until: float,
        patience: Patience,
    ) -> allocations.Allocation:
        """Return the allocation as soon as it holds its GPUs.

        Raises:
            NotEnoughGpus: it has ended, or does not hold them in time.
        """
        seen = made
        while not seen.success:
            left = until - time.monotonic()
            if seen.phase in ENDED:
                raise NotEnoughGpus(f"{seen.allocation_id} has ended: {seen.message}")
            if left <= 0 or patience.stop.wait(min(POLL_SECONDS, left)):
                never = left <= 0 and self._can_never_fit(config)
                message = seen.message or f"{seen.allocation_id} waits for its GPUs"
                raise NotEnoughGpus(message, never=never)
            seen = self._calls.get(f"allocations/{seen.allocation_id}", allocations.Allocation)
        return seen

    def _can_never_fit(self, config: TrainingGPUConfig) -> bool:
        """Return whether a longer wait is of no use.

        This is checked only at the end of the wait: nodes may be added during it.
        """
        try:
            return not self.validate(config).valid
        except GpupackError:
            return False

    def _try_release(self, allocation_id: str) -> None:
        """Release an allocation as far as possible; otherwise its time ends it."""
        try:
            self.release(allocation_id)
        except GpupackError as error:
            raise NotEnoughGpus(
                f"{allocation_id} may hold GPUs until its time is over; it could not be released: "
                f"{error}"
            ) from error

    def _allocation(self, held: allocations.Allocation, config: TrainingGPUConfig) -> Allocation:
        workers = held.gpu_config.workers
        first = workers[0].device_uuids if workers else ()
        simulated = any(each.startswith(SIMULATED_UUID) for each in first)
        return Allocation(
            allocation_id=held.allocation_id,
            config=config,
            workers=workers,
            environment=held.gpu_config.environment
            | {"GPUPACK_DEVICES": ",".join(first), "GPUPACK_SIMULATED": str(simulated).lower()},
            give_back=lambda: self.release(held.allocation_id),
            simulated=simulated,
            expires=held.expires,
        )


def _training(config: TrainingGPUConfig) -> Training:
    """Return the request for the REST API.

    Raises:
        Unsupported: the REST API holds only whole GPUs.
    """
    if config.is_share:
        raise Unsupported(
            "compute_ratio below 1: the REST API allocates only whole GPUs; submit a GPUJob with "
            "`share`, or use GPUs of this machine (backend this-machine)"
        )
    return Training(
        gpu_count=config.gpu_count,
        gpu_type=config.gpu_type,
        memory_gb=config.memory_gb,
        distributed_training=config.distributed_training,
        mixed_precision=config.mixed_precision,
    )
