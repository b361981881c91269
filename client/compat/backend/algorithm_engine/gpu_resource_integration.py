# SPDX-License-Identifier: Apache-2.0
"""gpupack by the names of older clients: an allocation is a node's name, a failure is falsy.

Older clients expect `utilization` from 0 to 1; gpupack reports percent.
"""

import logging
import threading
from functools import cache
from typing import Any

from gpupack import (
    Allocation,
    GpupackError,
    GPUResourceStatus,
    TrainingGPUConfig,
    get_pytorch_gpu_integration,
    get_tensorflow_gpu_integration,
)
from gpupack import get_gpu_resource_manager as _shared_manager

__all__ = [
    "GPUResourceManager",
    "GPUResourceStatus",
    "TrainingGPUConfig",
    "get_gpu_resource_manager",
    "get_pytorch_gpu_integration",
    "get_tensorflow_gpu_integration",
]

log = logging.getLogger("gpu_resource_manager")
PERCENT = 100


class GPUResourceManager:
    """The shared manager of the process, with the older names."""

    def __init__(self) -> None:
        self._manager = _shared_manager()
        self._held: list[Allocation] = []
        self._changing = threading.Lock()

    @property
    def initialized(self) -> bool:
        """Whether the backend answers."""
        return self._manager.initialized

    def get_available_gpu_nodes(
        self, gpu_type: str | None = None, min_memory_gb: float = 16.0
    ) -> list[GPUResourceStatus]:
        """Return nodes with free GPUs."""
        return self._manager.get_available_gpu_nodes(gpu_type, min_memory_gb)

    def get_gpu_monitoring_data(self) -> dict[str, Any]:
        """Return the status with fractions of 1 in place of percent."""
        data = self._manager.get_gpu_monitoring_data()
        parts = {name: value / PERCENT for name, value in data["utilization"].items()}
        nodes = [
            {**node, "utilization": node["utilization"] / PERCENT}
            for node in data["available_nodes"]
        ]
        return {**data, "utilization": parts, "available_nodes": nodes}

    def validate_gpu_requirements(self, gpu_config: TrainingGPUConfig) -> bool:
        """Return whether the request can be satisfied."""
        return bool(self._manager.validate_gpu_requirements(gpu_config))

    def allocate_gpu_resources(self, training_config: TrainingGPUConfig) -> str | None:
        """Hold GPUs; return the name of their first node, or None."""
        try:
            allocation = self._manager.allocate_gpu_resources(training_config)
        except GpupackError as error:
            log.warning("no GPUs: %s", error)
            return None
        with self._changing:
            self._held.append(allocation)
        return allocation.node_name

    def held(self, gpu_config: TrainingGPUConfig) -> Allocation | None:
        """Return the last allocation by an equal configuration that is still held."""
        with self._changing:
            return next((each for each in reversed(self._held) if each.config == gpu_config), None)

    def cleanup_gpu_resources(self, node_name: str | None, gpu_count: int) -> bool:
        """Release the last allocation with this first node and number of GPUs."""
        with self._changing:
            found = next(
                (each for each in reversed(self._held) if _matches(each, node_name, gpu_count)),
                None,
            )
            if found is None:
                return False
            self._held.remove(found)
        self._manager.cleanup_gpu_resources(found)
        return True

    def setup_distributed_training(self, gpu_config: TrainingGPUConfig) -> dict[str, Any]:
        """Return the workers' present nodes; {} where they do not fit or it is not distributed."""
        found = self._manager.validate_gpu_requirements(gpu_config)
        if not gpu_config.distributed_training or not found.fits_now:
            return {}
        return {
            "world_size": gpu_config.gpu_count,
            "nodes": [
                {
                    "node_name": node,
                    "gpu_count": found.gpus_per_worker,
                    "gpu_type": gpu_config.gpu_type,
                }
                for node in found.nodes
            ],
            "backend": "nccl",
            "init_method": "env://",
            "rank": 0,
        }


@cache
def get_gpu_resource_manager() -> GPUResourceManager:
    """Return the manager of this process."""
    return GPUResourceManager()


def _matches(allocation: Allocation, node_name: str | None, gpu_count: int) -> bool:
    return allocation.node_name == node_name and allocation.config.gpu_count == gpu_count
