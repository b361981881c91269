# SPDX-License-Identifier: Apache-2.0
"""The manager for programs with an event loop.

Its calls run those of GPUResourceManager in threads: file locks and NVML's calls block, and code
that both share must not be written twice. A call that is cancelled while it waits for GPUs stops
waiting, and holds none afterwards.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from gpupack.allocation import Allocation
from gpupack.errors import GpupackError
from gpupack.jobs import Jobs
from gpupack.manager import GPUResourceManager, has_changed
from gpupack.training_config import TrainingGPUConfig
from gpupack.views import (
    ClusterStatus,
    Explanation,
    GPUResourceStatus,
    QueueRow,
    Validation,
    WrittenJob,
)

T = TypeVar("T")
MAX_WAITING: Final = 1024
"""Maximum calls that wait for GPUs at once."""


class AsyncAllocation:
    """An allocation whose release is awaited; `gpus` is the allocation itself."""

    def __init__(self, gpus: Allocation) -> None:
        self.gpus = gpus

    async def release(self) -> None:
        """Release the GPUs.

        Raises:
            GpupackError: they may still be held.
        """
        await asyncio.to_thread(self.gpus.release)

    async def __aenter__(self) -> Allocation:
        return self.gpus

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.shield(self.release())


class AsyncJobs:
    """The asynchronous form of Jobs, which documents each call and its errors."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def queue(self, *, namespace: str = "", all_namespaces: bool = False) -> list[QueueRow]:
        """List GPUJobs and pods that wait for GPUs."""
        return await asyncio.to_thread(
            self._jobs.queue, namespace=namespace, all_namespaces=all_namespaces
        )

    async def explain(self, name: str, *, namespace: str = "") -> Explanation:
        """Return why a GPUJob waits, or how it ended."""
        return await asyncio.to_thread(self._jobs.explain, name, namespace=namespace)

    async def suspend(self, name: str, *, namespace: str = "") -> WrittenJob:
        """Stop a GPUJob until it is resumed."""
        return await asyncio.to_thread(self._jobs.suspend, name, namespace=namespace)

    async def resume(self, name: str, *, namespace: str = "") -> WrittenJob:
        """Let a GPUJob wait for GPUs again."""
        return await asyncio.to_thread(self._jobs.resume, name, namespace=namespace)

    async def rerun(self, name: str, *, namespace: str = "", new_name: str = "") -> WrittenJob:
        """Create a GPUJob of the same spec as one that has ended."""
        return await asyncio.to_thread(
            self._jobs.rerun, name, namespace=namespace, new_name=new_name
        )


class AsyncGPUResourceManager:
    """The asynchronous form of GPUResourceManager, which documents each call and its errors.

    Args:
        manager: does the work; it is closed with this object.
    """

    def __init__(self, manager: GPUResourceManager) -> None:
        self.manager = manager
        # A separate pool: waiting calls must not use up the threads that release GPUs.
        self._waits = ThreadPoolExecutor(MAX_WAITING, "gpupack-allocate")

    @property
    def jobs(self) -> AsyncJobs:
        """GPUJobs of the cluster; raises the errors of GPUResourceManager.jobs."""
        return AsyncJobs(self.manager.jobs)

    async def get_available_gpu_nodes(
        self, gpu_type: str | None = None, min_memory_gb: float = 0.0, *, vendor: str = ""
    ) -> list[GPUResourceStatus]:
        """Return nodes with a free GPU of this model and at least this memory."""
        return await asyncio.to_thread(
            self.manager.get_available_gpu_nodes, gpu_type, min_memory_gb, vendor=vendor
        )

    async def get_gpu_status(self) -> ClusterStatus:
        """Return what is free and what is allocated."""
        return await asyncio.to_thread(self.manager.get_gpu_status)

    async def get_gpu_monitoring_data(self) -> dict[str, Any]:
        """Return the same data in the form of `GET status`."""
        return await asyncio.to_thread(self.manager.get_gpu_monitoring_data)

    async def validate_gpu_requirements(self, config: TrainingGPUConfig) -> Validation:
        """Tell whether the request can be satisfied."""
        return await asyncio.to_thread(self.manager.validate_gpu_requirements, config)

    async def allocate_gpu_resources(
        self,
        config: TrainingGPUConfig,
        *,
        timeout_seconds: float | None = None,
        hold_seconds: int | None = None,
    ) -> AsyncAllocation:
        """Hold GPUs; a cancelled call holds none."""
        patience = self.manager.patience(timeout_seconds, hold_seconds)
        loop = asyncio.get_running_loop()
        working = loop.run_in_executor(self._waits, self.manager.allocate, config, patience)
        try:
            return AsyncAllocation(await asyncio.shield(working))
        except asyncio.CancelledError:
            patience.stop.set()
            with suppress(GpupackError):
                gpus = await _finished(working)
                await _finished(asyncio.ensure_future(asyncio.to_thread(gpus.release)))
            raise

    async def run_on(
        self,
        allocation: AsyncAllocation | Allocation | str,
        command: Sequence[str],
        *,
        image: str,
        environment: Mapping[str, str] | None = None,
        non_root: bool = False,
    ) -> None:
        """Run a program on the GPUs of an allocation of the cluster."""
        held = allocation.gpus if isinstance(allocation, AsyncAllocation) else allocation
        run = partial(self.manager.run_on, image=image, environment=environment, non_root=non_root)
        await asyncio.to_thread(run, held, command)

    async def cleanup_gpu_resources(
        self, allocation: AsyncAllocation | Allocation | str | None = None
    ) -> None:
        """Release GPUs; None: all."""
        held = allocation.gpus if isinstance(allocation, AsyncAllocation) else allocation
        await asyncio.to_thread(self.manager.cleanup_gpu_resources, held)

    async def watch(self) -> AsyncIterator[ClusterStatus]:
        """Yield the status now, and again whenever it has changed."""
        last = await self.get_gpu_status()
        yield last
        while True:
            await asyncio.sleep(self.manager.config.monitor_update_interval)
            status = await self.get_gpu_status()
            if has_changed(last, status, self.manager.config.resource_change_threshold):
                last = status
                yield status

    async def close(self) -> None:
        """Release everything, and close all connections."""
        await asyncio.to_thread(self.manager.close)
        self._waits.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.shield(self.close())


async def _finished(working: "asyncio.Future[T]") -> T:
    """Return the outcome, however often this task is cancelled: held GPUs must not be lost."""
    while not working.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(working)
    return working.result()
