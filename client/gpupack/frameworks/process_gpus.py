# SPDX-License-Identifier: Apache-2.0
"""The GPUs of this process: those that it already has, or newly allocated ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpupack.allocation import Allocation
from gpupack.errors import CpuFallbackWarning, GpupackError, Unsupported, warn
from gpupack.manager import GPUResourceManager
from gpupack.process_setup import Visible
from gpupack.training_config import BYTES_PER_GB, BYTES_PER_MIB, TrainingGPUConfig

DEVICES_VARIABLE: Final = "GPUPACK_DEVICES"
RANKS_VARIABLE: Final = "WORLD_SIZE"


@dataclass(frozen=True, slots=True)
class ProcessGpus:
    """GPUs that the process sees; none: it computes on the CPU.

    Attributes:
        visible: GPUs in the order of CUDA's numbers.
        simulated: nothing computes on them.
        allocation: allocation that was made for this; None: the process had the GPUs before.
    """

    visible: tuple[Visible, ...] = ()
    simulated: bool = False
    allocation: Allocation | None = None


def find_process_gpus(
    manager: GPUResourceManager,
    config: TrainingGPUConfig,
    allocation: Allocation | None,
    environ: Mapping[str, str],
) -> ProcessGpus:
    """Return the allocation's GPUs; else those in the environment; else some of this machine.

    Without any the process continues on the CPU, and CpuFallbackWarning gives the reason.

    Raises:
        Unsupported: one of several ranks was started without GPUs; each would allocate all of them.
    """
    if allocation is not None:
        return _from_environment(manager, allocation.environment, allocation)
    if environ.get(DEVICES_VARIABLE):
        return _from_environment(manager, environ, None)
    if int(environ.get(RANKS_VARIABLE) or 1) > 1:
        raise Unsupported(
            f"this is one of {environ[RANKS_VARIABLE]} ranks, and {DEVICES_VARIABLE} names no "
            "GPUs; allocate them before torchrun is started, and start it with the allocation's "
            "environment"
        )
    return _allocate(manager, config)


def warn_of_cpu(why: str) -> None:
    """Warn that the process computes on the CPU."""
    warn(f"computing on the CPU: {why}", CpuFallbackWarning)


def _allocate(manager: GPUResourceManager, config: TrainingGPUConfig) -> ProcessGpus:
    if manager.backend.name != "this-machine":
        warn_of_cpu(
            "GPUs of a cluster are used by the pods of a GPUJob, or by a process on their node "
            "that has an allocation"
        )
        return ProcessGpus()
    try:
        allocation = manager.allocate_gpu_resources(config)
    except GpupackError as error:
        warn_of_cpu(str(error))
        return ProcessGpus()
    return _from_environment(manager, allocation.environment, allocation)


def _from_environment(
    manager: GPUResourceManager, environ: Mapping[str, str], allocation: Allocation | None
) -> ProcessGpus:
    uuids = [
        each
        for each in environ.get(DEVICES_VARIABLE, environ["CUDA_VISIBLE_DEVICES"]).split(",")
        if each
    ]
    known = _known(manager)
    share = int(environ.get("GPUPACK_DEVICE_PERCENT") or 100) < 100  # noqa: PLR2004 - percent
    limit = int(environ.get("GPUPACK_DEVICE_MEMORY_MIB") or 0)
    return ProcessGpus(
        tuple(_visible(each, known, limit if share else 0) for each in uuids),
        simulated=environ.get("GPUPACK_SIMULATED") == "true",
        allocation=allocation,
    )


def _visible(uuid: str, known: Mapping[str, tuple[str, int]], share_mib: int) -> Visible:
    model, total = known.get(uuid, ("", 0))
    if not share_mib:
        return Visible(uuid, model, total)
    return Visible(uuid, model, share_mib, total)


def _known(manager: GPUResourceManager) -> dict[str, tuple[str, int]]:
    """Return model and MiB by UUID; unknown memory sets no limit."""
    try:
        nodes = manager.backend.nodes()
    except GpupackError:
        return {}
    return {
        gpu.uuid: (gpu.gpu_type, int(gpu.memory_gb * BYTES_PER_GB / BYTES_PER_MIB))
        for node in nodes
        for gpu in node.devices
    }
