# SPDX-License-Identifier: Apache-2.0
"""The manager for programs with an event loop.

Its calls are those of GPUResourceManager, in threads: locks of files and NVML's calls block, and
what is to be shared by both must not be written twice. A call that is cancelled while it waits for
GPUs stops waiting, and holds none afterwards.
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
from gpupack.job_views import Explanation, QueueRow, WrittenJob
from gpupack.jobs import Jobs
from gpupack.manager import GPUResourceManager, has_changed
from gpupack.training_config import TrainingGPUConfig
from gpupack.views import ClusterStatus, GPUResourceStatus, Validation

T = TypeVar("T")
MAX_WAITING: Final = 1024
"""At once, for GPUs."""


class AsyncAllocation:
    """An allocation whose end is awaited; all else of it is at `gpus`."""

    def __init__(self, gpus: Allocation) -> None:
        self.gpus = gpus

    async def release(self) -> None:
        """Give the GPUs back.

        Raises:
            GpupackError: they may be held still.
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
    """As Jobs; what each call does and raises stands there."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def queue(self, *, namespace: str = "", all_namespaces: bool = False) -> list[QueueRow]:
        """List what waits for GPUs."""
        return await asyncio.to_thread(
            self._jobs.queue, namespace=namespace, all_namespaces=all_namespaces
        )

    async def explain(self, name: str, *, namespace: str = "") -> Explanation:
        """Say why a GPUJob waits, or what became of it."""
        return await asyncio.to_thread(self._jobs.explain, name, namespace=namespace)

    async def suspend(self, name: str, *, namespace: str = "") -> WrittenJob:
        """Stop a GPUJob until it is resumed."""
        return await asyncio.to_thread(self._jobs.suspend, name, namespace=namespace)

    async def resume(self, name: str, *, namespace: str = "") -> WrittenJob:
        """Let a GPUJob wait again."""
        return await asyncio.to_thread(self._jobs.resume, name, namespace=namespace)

    async def rerun(self, name: str, *, namespace: str = "", new_name: str = "") -> WrittenJob:
        """Make a new GPUJob of the same spec as one that has ended."""
        return await asyncio.to_thread(
            self._jobs.rerun, name, namespace=namespace, new_name=new_name
        )


class AsyncGPUResourceManager:
    """As GPUResourceManager; what each call does and raises stands there.

    Args:
        manager: which does the work; it is closed with this one.
    """

    def __init__(self, manager: GPUResourceManager) -> None:
        self.manager = manager
        # Of its own: who waits must keep no thread from those who give back.
        self._waits = ThreadPoolExecutor(MAX_WAITING, "gpupack-allocate")

    @property
    def jobs(self) -> AsyncJobs:
        """GPUJobs of the cluster; raises as GPUResourceManager.jobs."""
        return AsyncJobs(self.manager.jobs)

    async def get_available_gpu_nodes(
        self, gpu_type: str | None = None, min_memory_gb: float = 0.0, *, vendor: str = ""
    ) -> list[GPUResourceStatus]:
        """Nodes with a free GPU of this model that has so much memory."""
        return await asyncio.to_thread(
            self.manager.get_available_gpu_nodes, gpu_type, min_memory_gb, vendor=vendor
        )

    async def get_gpu_status(self) -> ClusterStatus:
        """What is free and what is given out."""
        return await asyncio.to_thread(self.manager.get_gpu_status)

    async def get_gpu_monitoring_data(self) -> dict[str, Any]:
        """The same in the shape of `GET status`."""
        return await asyncio.to_thread(self.manager.get_gpu_monitoring_data)

    async def validate_gpu_requirements(self, config: TrainingGPUConfig) -> Validation:
        """Tell whether it can be served."""
        return await asyncio.to_thread(self.manager.validate_gpu_requirements, config)

    async def allocate_gpu_resources(
        self,
        config: TrainingGPUConfig,
        *,
        timeout_seconds: float | None = None,
        hold_seconds: int | None = None,
    ) -> AsyncAllocation:
        """Hold GPUs; cancelled, it holds none."""
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
        """Have a program run on the GPUs of an allocation of the cluster."""
        held = allocation.gpus if isinstance(allocation, AsyncAllocation) else allocation
        run = partial(self.manager.run_on, image=image, environment=environment, non_root=non_root)
        await asyncio.to_thread(run, held, command)

    async def cleanup_gpu_resources(
        self, allocation: AsyncAllocation | Allocation | str | None = None
    ) -> None:
        """Give GPUs back; None: all."""
        held = allocation.gpus if isinstance(allocation, AsyncAllocation) else allocation
        await asyncio.to_thread(self.manager.cleanup_gpu_resources, held)

    async def watch(self) -> AsyncIterator[ClusterStatus]:
        """The status now, and anew whenever it has changed."""
        last = await self.get_gpu_status()
        yield last
        while True:
            await asyncio.sleep(self.manager.config.monitor_update_interval)
            status = await self.get_gpu_status()
            if has_changed(last, status, self.manager.config.resource_change_threshold):
                last = status
                yield status

    async def close(self) -> None:
        """Give everything back, and close what is open."""
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
    """Its outcome, however often this task is cancelled: what it holds must not be lost."""
    while not working.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(working)
    return working.result()
