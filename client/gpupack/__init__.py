# SPDX-License-Identifier: Apache-2.0
"""GPUs for a Python program: of a cluster that gpupack schedules, or of this machine.

    from gpupack import TrainingGPUConfig, get_gpu_resource_manager

    with get_gpu_resource_manager() as manager:
        with manager.allocate_gpu_resources(TrainingGPUConfig(gpu_count=2)) as gpus:
            print(gpus.node_name, gpus.environment["CUDA_VISIBLE_DEVICES"])

Names are imported on first use: a program that only computes settings needs neither numpy nor
httpx.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpupack.allocation import Allocation
    from gpupack.async_manager import AsyncAllocation, AsyncGPUResourceManager, AsyncJobs
    from gpupack.backend import Backend, Patience
    from gpupack.config import GpuConfig, load_config
    from gpupack.errors import (
        CallRefused,
        ConfigInvalid,
        CpuFallbackWarning,
        FrameworkMissing,
        GpupackError,
        GpupackWarning,
        InventoryUnavailable,
        LedgerBroken,
        LedgerBusy,
        LedgerUnusable,
        NotEnoughGpus,
        NothingHeld,
        ServerNotFound,
        ServerUnreachable,
        SimulatedGpuWarning,
        Unsupported,
    )
    from gpupack.frameworks import (
        get_pytorch_gpu_integration,
        get_tensorflow_gpu_integration,
    )
    from gpupack.jobs import Jobs
    from gpupack.manager import GPUResourceManager
    from gpupack.opening import (
        get_async_gpu_resource_manager,
        get_gpu_resource_manager,
        open_manager,
    )
    from gpupack.training_config import TrainingGPUConfig
    from gpupack.views import (
        ClusterStatus,
        DeviceStatus,
        Explanation,
        GPUResourceStatus,
        JobName,
        QueueRow,
        Start,
        Validation,
        WorkerGpus,
        WrittenJob,
    )

__all__ = [
    "Allocation",
    "AsyncAllocation",
    "AsyncGPUResourceManager",
    "AsyncJobs",
    "Backend",
    "CallRefused",
    "ClusterStatus",
    "ConfigInvalid",
    "CpuFallbackWarning",
    "DeviceStatus",
    "Explanation",
    "FrameworkMissing",
    "GPUResourceManager",
    "GPUResourceStatus",
    "GpuConfig",
    "GpupackError",
    "GpupackWarning",
    "InventoryUnavailable",
    "JobName",
    "Jobs",
    "LedgerBroken",
    "LedgerBusy",
    "LedgerUnusable",
    "NotEnoughGpus",
    "NothingHeld",
    "Patience",
    "QueueRow",
    "ServerNotFound",
    "ServerUnreachable",
    "SimulatedGpuWarning",
    "Start",
    "TrainingGPUConfig",
    "Unsupported",
    "Validation",
    "WorkerGpus",
    "WrittenJob",
    "get_async_gpu_resource_manager",
    "get_gpu_resource_manager",
    "get_pytorch_gpu_integration",
    "get_tensorflow_gpu_integration",
    "load_config",
    "open_manager",
]

_MODULES = (
    ("errors", "CallRefused ConfigInvalid CpuFallbackWarning GpupackError GpupackWarning"),
    ("errors", "FrameworkMissing InventoryUnavailable LedgerBroken LedgerBusy"),
    ("errors", "LedgerUnusable NotEnoughGpus"),
    ("errors", "NothingHeld ServerNotFound ServerUnreachable SimulatedGpuWarning Unsupported"),
    ("allocation", "Allocation"),
    ("async_manager", "AsyncAllocation AsyncGPUResourceManager AsyncJobs"),
    ("backend", "Backend Patience"),
    ("config", "GpuConfig load_config"),
    ("frameworks", "get_pytorch_gpu_integration get_tensorflow_gpu_integration"),
    ("jobs", "Jobs"),
    ("manager", "GPUResourceManager"),
    ("opening", "get_async_gpu_resource_manager get_gpu_resource_manager open_manager"),
    ("training_config", "TrainingGPUConfig"),
    ("views", "ClusterStatus DeviceStatus Explanation GPUResourceStatus JobName QueueRow Start"),
    ("views", "Validation WorkerGpus WrittenJob"),
)
_MODULE_OF = {name: f"gpupack.{module}" for module, names in _MODULES for name in names.split()}


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
