# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the GPUs of a process.

gpus_for ─► process_setup.pytorch_settings ─► environment, memory, process group ─► device
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gpupack.allocation import Allocation
from gpupack.errors import FrameworkMissing, Unsupported
from gpupack.frameworks.mlp import MlpConfig, parse_mlp
from gpupack.frameworks.process_gpus import ProcessGpus, find_process_gpus, warn_of_cpu
from gpupack.manager import GPUResourceManager
from gpupack.opening import get_gpu_resource_manager
from gpupack.process_setup import PyTorchSettings, PyTorchSetup, pytorch_settings
from gpupack.process_setup.gang import WORKERS
from gpupack.training_config import TrainingGPUConfig

_ACTIVATIONS: Final = {"relu": "ReLU", "tanh": "Tanh", "gelu": "GELU"}


@dataclass(frozen=True, slots=True)
class PyTorchGPU:
    """The state after a setup of PyTorch.

    Attributes:
        settings: settings that were applied.
        device: torch.device of this process.
        gpu_count: number of GPUs that the process sees.
        simulated: its GPUs are simulated, and it computes on the CPU.
        allocation: allocation that was made for this; the manager releases it.
    """

    settings: PyTorchSettings
    device: Any
    gpu_count: int
    simulated: bool
    allocation: Allocation | None

    @property
    def distributed(self) -> bool:
        """Whether there are several ranks."""
        return self.settings.process_group is not None

    def autocast(self) -> "contextlib.AbstractContextManager[Any]":
        """Return torch.autocast with the GPU's fast type; nothing in full precision."""
        precision = self.settings.precision
        if not precision.enabled:
            return contextlib.nullcontext()
        torch = _torch()
        context: contextlib.AbstractContextManager[Any] = torch.autocast(
            self.device.type, dtype=getattr(torch, precision.dtype)
        )
        return context

    def grad_scaler(self) -> Any:
        """Return torch.amp.GradScaler, which does nothing where the type needs none."""
        enabled = self.settings.precision.grad_scaler
        return _torch().amp.GradScaler(self.device.type, enabled=enabled)


class PyTorchGPUIntegration:
    """The setup of PyTorch and its models on GPUs.

    Args:
        manager: manager of the GPUs; None: the one that the process shares.
    """

    def __init__(self, manager: GPUResourceManager | None = None) -> None:
        self.manager = manager or get_gpu_resource_manager()
        self._done: PyTorchGPU | None = None

    def setup_pytorch_gpu(
        self, config: TrainingGPUConfig, allocation: Allocation | None = None
    ) -> PyTorchGPU:
        """Let this process use its GPUs; call it before CUDA is used.

        The GPUs are those of `allocation`; else those that GPUPACK_DEVICES names, as in a pod; else
        they are allocated on this machine. Without any the process continues on the CPU, and
        CpuFallbackWarning gives the reason. Under torchrun the ranks form a process group.

        Raises:
            FrameworkMissing: PyTorch is not installed.
            Unsupported: CUDA is already in use, ranks were started without GPUs, or this is a
                worker of several that has no rank.
            SetupInvalid: RANK, WORLD_SIZE and related variables contradict each other.
        """
        torch = _torch()
        config.check()
        given = find_process_gpus(self.manager, config, allocation, os.environ)
        settings = pytorch_settings(_setup(config, given, os.environ), given.visible)
        _set_variables(torch, settings)
        if given.visible and not _sees(torch, given):
            warn_of_cpu(_cpu_reason(given))
            settings = pytorch_settings(_setup(config, ProcessGpus(), os.environ))
        self._done = PyTorchGPU(
            settings=settings,
            device=_device(torch, settings),
            gpu_count=torch.cuda.device_count() if settings.device != "cpu" else 0,
            simulated=given.simulated,
            allocation=given.allocation,
        )
        _init_process_group(torch, settings)
        return self._done

    def create_pytorch_model_with_gpu(
        self,
        model: Mapping[str, Any] | Callable[[], Any],
        config: TrainingGPUConfig,
        allocation: Allocation | None = None,
    ) -> Any:
        """Build a model on this process's device, in DistributedDataParallel where there are ranks.

        Args:
            model: a function that builds a torch.nn.Module, or such a module, or a description
                (mlp.py).
            config: config of setup_pytorch_gpu, which is called unless it was.
            allocation: allocation for setup_pytorch_gpu.

        Raises:
            ConfigInvalid: the description is wrong.
        """
        done = self._done if self._done and allocation is None else None
        done = done or self.setup_pytorch_gpu(config, allocation)
        module = _module(model).to(done.device)
        if done.settings.ddp is None:
            return module
        arguments = msgspec.structs.asdict(done.settings.ddp)
        if arguments["broadcast_buffers"]:  # the default; passing it is deprecated in 2.15
            del arguments["broadcast_buffers"]
        return _torch().nn.parallel.DistributedDataParallel(module, **arguments)


def _torch() -> Any:
    try:
        import torch  # noqa: PLC0415 - an extra, and seconds
    except ImportError as error:
        raise FrameworkMissing("PyTorch is not installed; run: pip install torch") from error
    return torch


def _setup(
    config: TrainingGPUConfig, given: ProcessGpus, environ: Mapping[str, str]
) -> PyTorchSetup:
    ranks = ranks_of(environ) if config.distributed_training else {}
    local = ranks.get("LOCAL_RANK")
    return PyTorchSetup(
        devices=tuple(each.id for each in given.visible),
        world_size=int(ranks.get("WORLD_SIZE") or 1),
        rank=int(ranks.get("RANK") or 0),
        local_rank=None if local is None else int(local),
        master_addr=ranks.get("MASTER_ADDR") or "127.0.0.1",
        master_port=int(ranks.get("MASTER_PORT") or 29500),
        mixed_precision=config.mixed_precision,
        gpu_memory_fraction=config.gpu_memory_fraction if given.visible else None,
    )


def ranks_of(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of this process's rank; without them it is the only one.

    Raises:
        Unsupported: it is in one of a GPUJob's several workers, where it cannot be the only one.
    """
    workers = environ.get(WORKERS) or "1"
    if workers != "1" and "WORLD_SIZE" not in environ:
        raise Unsupported(
            f"this is in one of {workers} workers, and WORLD_SIZE is not set: each would train by "
            "itself; start the script by torchrun, or set distributed.processesPerWorker to 1 in "
            "a GPUJob that is not elastic"
        )
    return environ


def _set_variables(torch: Any, settings: PyTorchSettings) -> None:
    """Set the variables before CUDA reads them."""
    name = "CUDA_VISIBLE_DEVICES"
    wanted = settings.environment[name]
    if torch.cuda.is_initialized() and os.environ.get(name) != wanted:
        raise Unsupported(
            f"CUDA is in use already, with {name}={os.environ.get(name)!r}; set up GPUs before "
            "anything else touches CUDA"
        )
    os.environ.update(settings.environment)


def _sees(torch: Any, given: ProcessGpus) -> bool:
    return not given.simulated and torch.cuda.device_count() == len(given.visible)


def _cpu_reason(given: ProcessGpus) -> str:
    if given.simulated:
        return "its GPUs are simulated"
    return f"PyTorch does not see {', '.join(each.id for each in given.visible)} here"


def _device(torch: Any, settings: PyTorchSettings) -> Any:
    device = torch.device(settings.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        if settings.memory_fraction is not None:
            torch.cuda.set_per_process_memory_fraction(settings.memory_fraction, device)
    return device


def _init_process_group(torch: Any, settings: PyTorchSettings) -> None:
    """Create the process group, unless the program has created one."""
    group = settings.process_group
    if group is None or torch.distributed.is_initialized():
        return
    torch.distributed.init_process_group(
        group.backend, init_method=group.init_method, world_size=group.world_size, rank=group.rank
    )


def _module(model: Mapping[str, Any] | Callable[[], Any]) -> Any:
    nn = _torch().nn
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, Mapping):
        return _mlp(nn, parse_mlp(model))
    return model()


def _mlp(nn: Any, config: MlpConfig) -> Any:
    layers = []
    for width, following in zip(config.widths, config.widths[1:], strict=False):
        layers += [nn.Linear(width, following), getattr(nn, _ACTIVATIONS[config.activation])()]
    return nn.Sequential(*layers[:-1])
