# SPDX-License-Identifier: Apache-2.0
"""The partitioning of a GPU in MIG mode into slices, with NVML.

MIG mode itself is never turned on or off. A slice is a GPU instance, which has memory and
multiprocessors, with one compute instance that takes all of it. The driver destroys no instance
that a process uses.
"""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpupack_agent.errors import InventoryUnavailable
from gpupack_agent.inventory.layout import Place, Profile

MAX_INSTANCES: Final = 16
"""An upper limit of the instances of one GPU, which has eight memory slots."""


def profiles(nvml: Any, gpu: Any) -> dict[str, Profile]:
    """Return the profiles of a GPU in MIG mode, by name, as far as the driver shows them."""
    found = {}
    for info in _profile_infos(nvml, gpu):
        if places := _places(nvml, gpu, info):
            found[_name(info)] = Profile(
                number=info.id,
                size=places[0].size,
                starts=tuple(sorted(place.start for place in places)),
                max_count=info.instanceCount,
            )
    return found


def partition(nvml: Any, gpu: Any, places: Sequence[Place]) -> None:
    """Destroy all slices of a GPU and create these.

    Raises:
        InventoryUnavailable: a process uses the GPU, or it has no such profile; nothing was
            changed.
        nvml.NVMLError: the driver refuses; the next scan shows the slices that then exist.
    """
    known = profiles(nvml, gpu)
    if missing := {place.profile for place in places} - known.keys():
        raise InventoryUnavailable(f"the GPU has no MIG profile {', '.join(sorted(missing))}")
    if running := nvml.nvmlDeviceGetComputeRunningProcesses(gpu):
        pids = ", ".join(str(each.pid) for each in running[:MAX_INSTANCES])
        raise InventoryUnavailable(f"processes use the GPU: {pids}")
    numbers = {info.id for info in _profile_infos(nvml, gpu)}
    for number in sorted(numbers):
        call, kind = nvml.nvmlDeviceGetGpuInstances, nvml.c_nvmlGpuInstance_t
        for instance in _instances(call, kind, gpu, number):
            _destroy(nvml, instance)
    for place in places:
        _create(nvml, gpu, place, known)


def _profile_infos(nvml: Any, gpu: Any) -> Iterator[Any]:
    for kind in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            yield nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, kind)
        except nvml.NVMLError:
            continue


def _name(info: Any) -> str:
    name = info.name.decode() if isinstance(info.name, bytes) else str(info.name)
    return name.removeprefix("MIG ").strip()


def _places(nvml: Any, gpu: Any, info: Any) -> list[Any]:
    """Return the places that the profile has on an empty GPU."""
    found = (nvml.c_nvmlGpuInstancePlacement_t * MAX_INSTANCES)()
    count = ctypes.c_uint(MAX_INSTANCES)
    try:
        nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, found, ctypes.byref(count))
    except nvml.NVMLError:
        return []
    return list(found[: count.value])


def _instances(call: Any, kind: Any, owner: Any, number: int) -> list[Any]:
    """Return a GPU's GPU instances, or a GPU instance's compute instances, of one profile."""
    found, count = (kind * MAX_INSTANCES)(), ctypes.c_uint(MAX_INSTANCES)
    call(owner, number, found, ctypes.byref(count))
    return list(found[: count.value])


def _destroy(nvml: Any, instance: Any) -> None:
    for number in {info.id for info in _compute_infos(nvml, instance)}:
        call, kind = nvml.nvmlGpuInstanceGetComputeInstances, nvml.c_nvmlComputeInstance_t
        for compute in _instances(call, kind, instance, number):
            nvml.nvmlComputeInstanceDestroy(compute)
    nvml.nvmlGpuInstanceDestroy(instance)


def _create(nvml: Any, gpu: Any, place: Place, known: Mapping[str, Profile]) -> None:
    at = nvml.c_nvmlGpuInstancePlacement_t(place.start, place.size)
    number = known[place.profile].number
    instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, number, ctypes.byref(at))
    whole = max(_compute_infos(nvml, instance), key=lambda info: int(info.sliceCount))
    nvml.nvmlGpuInstanceCreateComputeInstance(instance, whole.id)


def _compute_infos(nvml: Any, instance: Any) -> Iterator[Any]:
    engine = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for kind in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            yield nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, kind, engine)
        except nvml.NVMLError:
            continue
