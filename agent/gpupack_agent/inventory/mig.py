# SPDX-License-Identifier: Apache-2.0
"""The MIG slices of a GPU, as NVML lists them."""

import dataclasses
import math
from typing import Any

from gpupack_crds.devices import BYTES_PER_MIB

MIB_PER_GIB = 1024
SLOTS = 8
"""Number of memory slots of a GPU, by which the memory in profile names is rounded."""


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """A MIG slice.

    Attributes:
        handle: NVML's handle of it.
        profile: name of its profile.
        gpu: number of its GPU instance.
        compute: number of its compute instance.
        start: its first memory slot.
        size: number of its memory slots.
    """

    handle: Any
    profile: str
    gpu: int
    compute: int
    start: int
    size: int


def slices(nvml: Any, gpu: Any) -> list[Slice] | None:
    """Return the slices of a GPU; None: MIG is off or not supported; empty: it has none yet.

    Raises:
        nvml.NVMLError: the GPU does not list its slices, or a listed slice does not answer. If it
            counted as a GPU without slices, it would be handed out whole.
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
    name = _driver_profile_name(nvml, gpu, info.profileId) or profile_name(
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


def _driver_profile_name(nvml: Any, gpu: Any, profile: int) -> str:
    """Return the driver's name of a profile, by the number in an instance; empty: not known."""
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
    """Compute the name of a profile from its size, as NVIDIA's device plugin does (go-nvlib).

    Args:
        compute: number of slices of multiprocessors.
        memory_mib: memory of the slice.
        total_bytes: memory of its GPU.
    """
    total_mib = total_bytes / BYTES_PER_MIB
    part = math.ceil(memory_mib / total_mib * SLOTS) / SLOTS
    gigabytes = math.ceil(total_mib / MIB_PER_GIB)
    # Halves are rounded up, unlike in round(): half of an H200's 141 GB is 71.
    return f"{compute}g.{math.floor(part * gigabytes + 0.5)}gb"
