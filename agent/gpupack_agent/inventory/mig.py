# SPDX-License-Identifier: Apache-2.0
"""The MIG slices of a GPU, as NVML lists them."""

import dataclasses
import math
from typing import Any

from gpupack_crds.devices import BYTES_PER_MIB

MIB_PER_GIB = 1024
SLOTS = 8
"""Of memory; names of profiles are rounded by them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """`gpu` and `compute` number its instances; `start` and `size` count memory slots."""

    handle: Any
    profile: str
    gpu: int
    compute: int
    start: int
    size: int


def slices(nvml: Any, gpu: Any) -> list[Slice] | None:
    """Of a GPU; None where MIG is off or unknown to the board, empty where it is not cut yet.

    Raises:
        nvml.NVMLError: the GPU does not tell how it is cut, or a slice that is listed does not
            answer. Taken for a GPU without slices it would be handed out whole.
    """
    try:
        mode = nvml.nvmlDeviceGetMigMode(gpu)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return None
    if mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return None
    total = nvml.nvmlDeviceGetMemoryInfo(gpu).total
    found: list[Slice] = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except (nvml.NVMLError_NotFound, nvml.NVMLError_InvalidArgument):
            continue
        found.append(_read(nvml, gpu, handle, total))
    return found


def _read(nvml: Any, gpu: Any, handle: Any, total: int) -> Slice:
    number = nvml.nvmlDeviceGetGpuInstanceId(handle)
    info = nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(gpu, number))
    attributes = nvml.nvmlDeviceGetAttributes(handle)
    name = _told(nvml, gpu, info.profileId) or profile_name(
        attributes.gpuInstanceSliceCount, attributes.memorySizeMB, total
    )
    part = attributes.computeInstanceSliceCount
    return Slice(
        handle=handle,
        profile=name if part == attributes.gpuInstanceSliceCount else f"{part}c.{name}",
        gpu=number,
        compute=nvml.nvmlDeviceGetComputeInstanceId(handle),
        start=info.placement.start,
        size=info.placement.size,
    )


def _told(nvml: Any, gpu: Any, profile: int) -> str:
    """The name that the driver has for a profile, by the number of it that an instance tells."""
    for kind in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, kind)
        except nvml.NVMLError:
            continue
        if info.id == profile:
            name = info.name.decode() if isinstance(info.name, bytes) else str(info.name)
            return name.removeprefix("MIG ").strip()
    return ""


def profile_name(compute: int, memory_mib: int, total_bytes: int) -> str:
    """The name of a profile by its size, as NVIDIA's device plugin makes it up (go-nvlib).

    Args:
        compute: slices of multiprocessors.
        memory_mib: memory of the slice.
        total_bytes: memory of its GPU.
    """
    total_mib = total_bytes / BYTES_PER_MIB
    part = math.ceil(memory_mib / total_mib * SLOTS) / SLOTS
    gigabytes = math.ceil(total_mib / MIB_PER_GIB)
    # Halves upwards, unlike round(): half of an H200's 141 GB is 71.
    return f"{compute}g.{math.floor(part * gigabytes + 0.5)}gb"
