# SPDX-License-Identifier: Apache-2.0
"""Which processes use a GPU, and how much of its memory.

NVML tells of each client of MPS what it has (on an H200 with driver 580), and which processes are
clients. PIDs are those of the reader's namespace, so it has to be the host's.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that uses a GPU.

    Attributes:
        uuid: the GPU's.
        bytes: of its memory.
        is_client: of MPS.
    """

    uuid: str
    pid: int
    bytes: int
    is_client: bool


def read(nvml: Any, uuids: Iterable[str]) -> tuple[DeviceProcess, ...]:
    """Ask the driver; it may block. A GPU that does not answer hides no other's processes.

    Args:
        nvml: the module `pynvml`, or anything with its functions.
        uuids: the GPUs.

    Raises:
        NVMLError: of the module; no GPU answers.
    """
    found, errors, answered = list[DeviceProcess](), list[Exception](), False
    for uuid in uuids:
        try:
            found += _of_gpu(nvml, uuid)
            answered = True
        except nvml.NVMLError as error:
            errors.append(error)
    if errors and not answered:
        raise errors[0]
    return tuple(found)


def _of_gpu(nvml: Any, uuid: str) -> list[DeviceProcess]:
    """Clients are asked for twice: who begins or ends in between is one all the same.

    Who computes by a library for graphics, such as Vulkan, stands in a list of its own.
    """
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    clients = _clients(nvml, handle)
    used: dict[int, int] = {}
    for each in (*nvml.nvmlDeviceGetComputeRunningProcesses(handle), *_graphics(nvml, handle)):
        used[each.pid] = max(used.get(each.pid, 0), each.usedGpuMemory or 0)
    clients |= _clients(nvml, handle)
    return [DeviceProcess(uuid, pid, memory, pid in clients) for pid, memory in used.items()]


def _graphics(nvml: Any, handle: Any) -> Iterable[Any]:
    """None on boards without graphics."""
    try:
        found: Iterable[Any] = nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
    except nvml.NVMLError_NotSupported:
        return ()
    return found


def _clients(nvml: Any, handle: Any) -> set[int]:
    return {each.pid for each in nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)}
