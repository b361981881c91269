# SPDX-License-Identifier: Apache-2.0
"""What a type checker says of programs that use the Python API; it is checked and never run."""

from typing import assert_type

import gpupack
from gpupack import (
    Allocation,
    AsyncAllocation,
    AsyncGPUResourceManager,
    Backend,
    ClusterStatus,
    GPUResourceManager,
    GPUResourceStatus,
    TrainingGPUConfig,
    Validation,
    get_async_gpu_resource_manager,
    get_gpu_resource_manager,
)
from gpupack.cluster.backend import ClusterBackend
from gpupack.frameworks.pytorch import PyTorchGPU
from gpupack.host.backend import HostBackend


def calls(config: TrainingGPUConfig) -> None:
    manager = get_gpu_resource_manager()
    assert_type(manager, GPUResourceManager)
    assert_type(manager.validate_gpu_requirements(config), Validation)
    assert_type(manager.get_available_gpu_nodes("V100", 16), list[GPUResourceStatus])
    assert_type(manager.get_gpu_status(), ClusterStatus)
    with manager.allocate_gpu_resources(config, timeout_seconds=1) as gpus:
        assert_type(gpus, Allocation)
        assert_type(gpus.environment, dict[str, str])
        assert_type(gpus.device_uuids, tuple[str, ...])
    pytorch = gpupack.get_pytorch_gpu_integration(manager)
    assert_type(pytorch.setup_pytorch_gpu(config), PyTorchGPU)


async def awaited(config: TrainingGPUConfig) -> None:
    async with get_async_gpu_resource_manager() as manager:
        assert_type(manager, AsyncGPUResourceManager)
        held = await manager.allocate_gpu_resources(config)
        assert_type(held, AsyncAllocation)
        async with held as gpus:
            assert_type(gpus, Allocation)


def backends(host: HostBackend, cluster: ClusterBackend) -> tuple[Backend, Backend]:
    return host, cluster


def misused(manager: GPUResourceManager) -> None:
    manager.allocate_gpu_resources({"gpu_count": 2})  # type: ignore[arg-type]
    TrainingGPUConfig(gpus=2)  # type: ignore[call-arg]
    gpupack.no_such_name  # type: ignore[attr-defined]  # noqa: B018
