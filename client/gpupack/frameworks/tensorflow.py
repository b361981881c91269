# SPDX-License-Identifier: Apache-2.0
"""TensorFlow on the GPUs of a process.

gpus_for ─► process_setup.tensorflow_settings ─► environment, memory, precision ─► strategy
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpupack.allocation import Allocation
from gpupack.errors import FrameworkMissing
from gpupack.frameworks.mlp import MlpConfig, parse_mlp
from gpupack.frameworks.process_gpus import ProcessGpus, find_process_gpus, warn_of_cpu
from gpupack.manager import GPUResourceManager
from gpupack.opening import get_gpu_resource_manager
from gpupack.process_setup import (
    Place,
    TensorFlowSettings,
    TensorFlowSetup,
    apply_tensorflow,
    place_of,
    tensorflow_settings,
)
from gpupack.process_setup.tensorflow import Strategy
from gpupack.training_config import TrainingGPUConfig


@dataclass(frozen=True, slots=True)
class TensorFlowGPU:
    """The state after a setup of TensorFlow.

    Attributes:
        settings: settings that were applied.
        strategy: strategy of tf.distribute; None: the process computes on one device.
        gpu_count: number of GPUs that the process sees.
        simulated: its GPUs are simulated, and it computes on the CPU.
        allocation: allocation that was made for this; the manager releases it.
    """

    settings: TensorFlowSettings
    strategy: Any
    gpu_count: int
    simulated: bool
    allocation: Allocation | None

    @property
    def distributed(self) -> bool:
        """Whether a strategy distributes the training."""
        return self.strategy is not None

    def scope(self) -> "contextlib.AbstractContextManager[Any]":
        """Return the scope for variables that the strategy keeps on all devices."""
        if self.strategy is None:
            return contextlib.nullcontext()
        scope: contextlib.AbstractContextManager[Any] = self.strategy.scope()
        return scope


class TensorFlowGPUIntegration:
    """The setup of TensorFlow and its models on GPUs.

    Args:
        manager: manager of the GPUs; None: the one that the process shares.
    """

    def __init__(self, manager: GPUResourceManager | None = None) -> None:
        self.manager = manager or get_gpu_resource_manager()
        self._done: TensorFlowGPU | None = None

    def setup_tensorflow_gpu(
        self, config: TrainingGPUConfig, allocation: Allocation | None = None
    ) -> TensorFlowGPU:
        """Let this process use its GPUs; call it before TensorFlow uses any.

        The choice of GPUs, and the fallback to the CPU, are those of PyTorch's setup_pytorch_gpu.
        With `distributed_training` all visible GPUs form one MirroredStrategy; several workers,
        from TF_CONFIG or in the pods of a GPUJob, form one MultiWorkerMirroredStrategy.

        Raises:
            FrameworkMissing: TensorFlow is not installed.
            Unsupported: TensorFlow has already initialized its GPUs.
            ConfigInvalid: TF_CONFIG is not JSON that names workers.
            SetupInvalid: fields of the setup contradict each other.
        """
        config.check()
        given = find_process_gpus(self.manager, config, allocation, os.environ)
        settings = tensorflow_settings(_setup(config, given, os.environ), given.visible)
        os.environ.update(settings.environment)
        tf = _tensorflow()
        if given.visible and len(tf.config.list_physical_devices("GPU")) != len(given.visible):
            warn_of_cpu(_cpu_reason(given))
            settings = tensorflow_settings(_setup(config, ProcessGpus(), os.environ))
        self._done = TensorFlowGPU(
            settings=settings,
            strategy=apply_tensorflow(tf, settings),
            gpu_count=len(settings.environment["CUDA_VISIBLE_DEVICES"].split(","))
            if settings.environment["CUDA_VISIBLE_DEVICES"]
            else 0,
            simulated=given.simulated,
            allocation=given.allocation,
        )
        return self._done

    def create_tensorflow_model_with_gpu(
        self,
        model: Mapping[str, Any] | Callable[[], Any],
        config: TrainingGPUConfig,
        allocation: Allocation | None = None,
    ) -> Any:
        """Build a Keras model under the strategy.

        Args:
            model: a function that builds the model, or a description (mlp.py).
            config: config of setup_tensorflow_gpu, which is called unless it was.
            allocation: allocation for setup_tensorflow_gpu.

        Raises:
            ConfigInvalid: the description is wrong.
        """
        done = self._done if self._done and allocation is None else None
        done = done or self.setup_tensorflow_gpu(config, allocation)
        with done.scope():
            if isinstance(model, Mapping):
                return _mlp(_tensorflow(), parse_mlp(model))
            return model()


def _tensorflow() -> Any:
    try:
        import tensorflow as tf  # noqa: PLC0415 - an extra, and seconds
    except ImportError as error:
        raise FrameworkMissing(
            "TensorFlow is not installed; run: pip install tensorflow"
        ) from error
    return tf


def _setup(
    config: TrainingGPUConfig, given: ProcessGpus, environ: Mapping[str, str]
) -> TensorFlowSetup:
    place = place_of(environ) if config.distributed_training else Place()
    alone: Strategy = "mirrored" if config.distributed_training else "none"
    known = all(each.memory_mib for each in given.visible)
    return TensorFlowSetup(
        devices=tuple(each.id for each in given.visible),
        gpu_memory_fraction=config.gpu_memory_fraction if given.visible and known else None,
        strategy="multi_worker" if place.workers else alone,
        workers=place.workers,
        task_index=place.index,
        mixed_precision=config.mixed_precision,
    )


def _cpu_reason(given: ProcessGpus) -> str:
    if given.simulated:
        return "its GPUs are simulated"
    return f"TensorFlow does not see {', '.join(each.id for each in given.visible)} here"


def _mlp(tf: Any, config: MlpConfig) -> Any:
    dense = tf.keras.layers.Dense
    hidden = [dense(width, activation=config.activation) for width in config.hidden_units]
    # The last layer is in float32, whatever type the others use: losses and metrics use its output.
    last = dense(config.output_dim, dtype="float32")
    return tf.keras.Sequential([tf.keras.Input((config.input_dim,)), *hidden, last])
