# SPDX-License-Identifier: Apache-2.0
"""TensorFlow and PyTorch on the GPUs of a process; imported on first use."""

from gpupack.frameworks.pytorch import PyTorchGPUIntegration
from gpupack.frameworks.tensorflow import TensorFlowGPUIntegration
from gpupack.manager import GPUResourceManager

__all__ = [
    "PyTorchGPUIntegration",
    "TensorFlowGPUIntegration",
    "get_pytorch_gpu_integration",
    "get_tensorflow_gpu_integration",
]


def get_tensorflow_gpu_integration(
    manager: GPUResourceManager | None = None,
) -> TensorFlowGPUIntegration:
    """Return TensorFlow on GPUs of this manager; None: of the manager that the process shares."""
    return TensorFlowGPUIntegration(manager)


def get_pytorch_gpu_integration(manager: GPUResourceManager | None = None) -> PyTorchGPUIntegration:
    """Return PyTorch on GPUs of this manager; None: of the manager that the process shares."""
    return PyTorchGPUIntegration(manager)
