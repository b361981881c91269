# SPDX-License-Identifier: Apache-2.0
"""Settings of PyTorch: GPUs, process group, precision."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from gpupack.process_setup.devices import Devices, SetupInvalid, Visible, visible_environment
from gpupack.process_setup.precision import Precision, precision_of

MAX_RANKS: Final = 1 << 16
HOST: Final = r"^[A-Za-z0-9\[][A-Za-z0-9.:\[\]-]*$"

Backend = Literal["auto", "nccl", "gloo", "mpi"]


class Ddp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of DistributedDataParallel."""

    find_unused_parameters: bool = False
    gradient_as_bucket_view: bool = True
    static_graph: bool = False
    broadcast_buffers: bool = True
    bucket_cap_mb: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 25


class PyTorchSetup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for settings of PyTorch.

    Attributes:
        devices: GPUs that the process sees, by UUID or index; empty: none, it computes on the CPU.
        backend: backend of torch.distributed; auto: nccl where there are GPUs, else gloo.
        world_size: ranks of all workers together; 0: one for each GPU.
        rank: rank of this process.
        local_rank: rank among those that see these GPUs; null: rank modulo their number.
        master_addr: host of rank 0, where all ranks connect.
        master_port: its TCP port.
        mixed_precision: AMP: compute with bfloat16 or float16.
        gpu_memory_fraction: maximum part of its GPU's memory (or of the share of it) for the
            process; null: no limit of its own.
        ddp: options of DistributedDataParallel.
    """

    devices: Devices = ()
    backend: Backend = "auto"
    world_size: Annotated[int, msgspec.Meta(ge=0, le=MAX_RANKS)] = 0
    rank: Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)] = 0
    local_rank: Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)] | None = None
    master_addr: Annotated[str, msgspec.Meta(pattern=HOST, max_length=253)] = "127.0.0.1"
    master_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 29500
    mixed_precision: bool = False
    gpu_memory_fraction: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    ddp: Ddp = Ddp()


class ProcessGroup(msgspec.Struct, frozen=True):
    """Arguments of torch.distributed.init_process_group."""

    backend: str
    init_method: str
    world_size: int
    rank: int


class DdpSettings(msgspec.Struct, frozen=True):
    """Arguments of DistributedDataParallel; `device_ids` is null on a CPU."""

    device_ids: list[int] | None
    output_device: int | None
    find_unused_parameters: bool
    gradient_as_bucket_view: bool
    static_graph: bool
    broadcast_buffers: bool
    bucket_cap_mb: int


class PyTorchSettings(msgspec.Struct, frozen=True):
    """The settings to apply to PyTorch.

    Attributes:
        environment: variables to set before CUDA is used.
        device: device of this process, such as cuda:0.
        process_group: null where there is one rank.
        precision: for torch.autocast and torch.amp.GradScaler.
        ddp: null where there is one rank.
        memory_fraction: for torch.cuda.set_per_process_memory_fraction, of the whole GPU; null: no
            limit.
    """

    environment: dict[str, str]
    device: str
    process_group: ProcessGroup | None
    precision: Precision
    ddp: DdpSettings | None
    memory_fraction: float | None


def pytorch_settings(setup: PyTorchSetup, visible: Sequence[Visible] = ()) -> PyTorchSettings:
    """Return the settings for a setup.

    Args:
        setup: the request.
        visible: known data of its devices, in their order; empty: none.

    Raises:
        SetupInvalid: its fields contradict each other.
    """
    here = max(len(setup.devices), 1)
    world = setup.world_size or here
    if setup.rank >= world:
        raise SetupInvalid("rank", setup.rank, f"give 0 to {world - 1}: world_size is {world}")
    local = setup.rank % here if setup.local_rank is None else setup.local_rank
    if setup.devices and local >= here:
        raise SetupInvalid("local_rank", local, f"give 0 to {here - 1}: there are {here} devices")
    known = visible or tuple(Visible(each) for each in setup.devices)
    gpu = local if setup.devices else None
    return PyTorchSettings(
        environment=_environment(setup, world, local),
        device="cpu" if gpu is None else f"cuda:{gpu}",
        process_group=None if world == 1 else _process_group(setup, world),
        precision=precision_of((each.model for each in known), mixed=setup.mixed_precision),
        ddp=None if world == 1 else _ddp(setup.ddp, gpu),
        memory_fraction=None if gpu is None else _fraction(setup.gpu_memory_fraction, known[gpu]),
    )


def _environment(setup: PyTorchSetup, world: int, local: int) -> dict[str, str]:
    environment = visible_environment(setup.devices)
    if world == 1:
        return environment
    return environment | {
        "MASTER_ADDR": setup.master_addr,
        "MASTER_PORT": str(setup.master_port),
        "WORLD_SIZE": str(world),
        "RANK": str(setup.rank),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(min(max(len(setup.devices), 1), world)),
    }


def _fraction(requested: float | None, gpu: Visible) -> float | None:
    """Return the fraction of the whole GPU; for a share, its part of the GPU."""
    if not gpu.total_mib:
        return requested
    part = gpu.memory_mib / gpu.total_mib
    return part if requested is None else requested * part


def _process_group(setup: PyTorchSetup, world: int) -> ProcessGroup:
    backend = setup.backend
    if backend == "auto":
        backend = "nccl" if setup.devices else "gloo"
    if backend == "nccl" and not setup.devices:
        raise SetupInvalid("backend", backend, "nccl needs GPUs; name devices, or use gloo")
    return ProcessGroup(backend, "env://", world, setup.rank)


def _ddp(options: Ddp, gpu: int | None) -> DdpSettings:
    return DdpSettings(
        device_ids=None if gpu is None else [gpu],
        output_device=gpu,
        find_unused_parameters=options.find_unused_parameters,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
        static_graph=options.static_graph,
        broadcast_buffers=options.broadcast_buffers,
        bucket_cap_mb=options.bucket_cap_mb,
    )
