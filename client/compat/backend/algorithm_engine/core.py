# SPDX-License-Identifier: Apache-2.0
"""The training engine of older clients, as far as its calls concern GPUs.

    train_algorithm ─► gpu_config of the training ─► hold GPUs ─► trainer.train ─► release them

It has no trainers: the caller has them, their parameters and the records of their tasks.
"""

import asyncio
from collections.abc import Awaitable, Hashable, Mapping
from typing import Any, Final, NoReturn, Protocol

from gpupack import (
    TrainingGPUConfig,
    get_pytorch_gpu_integration,
    get_tensorflow_gpu_integration,
)

from .gpu_resource_integration import get_gpu_resource_manager

__all__ = ["AlgorithmTrainingEngine"]

WITHOUT_GPUS: Final = (
    "cancel_training",
    "generate_parameters",
    "get_supported_algorithms",
    "get_training_status",
    "list_training_tasks",
    "training_tasks",
)
"""Attributes of the older engine that gpupack does not have."""


class Trainer(Protocol):
    """A trainer of one type of algorithm."""

    def train(self, config: Any, data: Mapping[str, Any]) -> Awaitable[Any]:
        """Train; the GPUs are held until this ends."""


class Training(Protocol):
    """A training's settings: `algorithm_params["gpu_config"]` has its GPU request."""

    algorithm_params: Mapping[str, Any]


class AlgorithmTrainingEngine:
    """An engine that runs trainers and holds GPUs for them.

    Attributes:
        algorithm_registry: trainers by type of algorithm; the caller fills it.
        gpu_manager: the manager of this process.
        tensorflow_gpu: the setup of TensorFlow.
        pytorch_gpu: the setup of PyTorch.
    """

    def __init__(self, trainers: Mapping[Hashable, Trainer] | None = None) -> None:
        self.algorithm_registry = dict(trainers or {})
        self.gpu_manager = get_gpu_resource_manager()
        self.tensorflow_gpu = get_tensorflow_gpu_integration()
        self.pytorch_gpu = get_pytorch_gpu_integration()

    async def train_algorithm(
        self, algorithm_type: Hashable, config: Training, data: Mapping[str, Any]
    ) -> Any:
        """Train while GPUs are held; without free ones the trainer runs on the CPU.

        Raises:
            ValueError: the registry has no trainer for the type, or no node can ever have so many
                GPUs.
            ConfigInvalid: a field of `gpu_config` is wrong.
        """
        trainer = self.algorithm_registry.get(algorithm_type)
        if trainer is None:
            raise ValueError(
                f"no trainer for {algorithm_type!r}: add yours to algorithm_registry; gpupack has "
                "only the GPU calls of this engine"
            )
        gpu_config = gpu_config_of(config)
        if gpu_config is None:
            return await trainer.train(config, data)
        if not await asyncio.to_thread(self.gpu_manager.validate_gpu_requirements, gpu_config):
            raise ValueError(f"no node can provide these GPUs: {gpu_config.as_dict()}")
        node = await asyncio.to_thread(self.gpu_manager.allocate_gpu_resources, gpu_config)
        try:
            return await trainer.train(config, data)
        finally:
            if node is not None:
                self.gpu_manager.cleanup_gpu_resources(node, gpu_config.gpu_count)

    def get_gpu_resource_status(self) -> dict[str, Any]:
        """Return GPUs by node and their utilization."""
        return self.gpu_manager.get_gpu_monitoring_data()

    def setup_tensorflow_training(
        self, model_config: Mapping[str, Any], gpu_config: TrainingGPUConfig
    ) -> Any:
        """Let this process use the GPUs that are held by this configuration, or hold some."""
        del model_config
        held = self.gpu_manager.held(gpu_config)
        return self.tensorflow_gpu.setup_tensorflow_gpu(gpu_config, held)

    def setup_pytorch_training(
        self, model_config: Mapping[str, Any], gpu_config: TrainingGPUConfig
    ) -> Any:
        """Let this process use the GPUs that are held by this configuration, or hold some."""
        del model_config
        return self.pytorch_gpu.setup_pytorch_gpu(gpu_config, self.gpu_manager.held(gpu_config))

    def __getattr__(self, name: str) -> NoReturn:
        """Raise AttributeError; for the older engine's other calls it names the replacement."""
        if name in WITHOUT_GPUS:
            raise AttributeError(
                f"AlgorithmTrainingEngine.{name} does not concern GPUs and is not in gpupack; keep "
                "your own engine's, and call train_algorithm for the GPUs"
            )
        raise AttributeError(f"AlgorithmTrainingEngine has no attribute {name!r}")


def gpu_config_of(config: Training) -> TrainingGPUConfig | None:
    """Return the GPU request of a training; None: it runs without GPUs.

    Raises:
        ConfigInvalid: a field has an invalid value.
        TypeError: there is no such field.
    """
    settings = dict(config.algorithm_params.get("gpu_config") or {})
    return TrainingGPUConfig(**settings) if settings.pop("enabled", True) else None
