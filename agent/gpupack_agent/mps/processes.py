# SPDX-License-Identifier: Apache-2.0
"""The processes that use a GPU, and the memory of each.

NVML reports the memory of each client of MPS (on an H200 with driver 580), and which processes are
clients. PIDs are those of the reader's namespace, so it must be the host's.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that uses a GPU.

    Attributes:
        uuid: UUID of the GPU.
        bytes: memory of the GPU that it uses.
        is_client: whether it is a client of MPS.
    """

    uuid: str
    pid: int
    bytes: int
    is_client: bool


def read(nvml: Any, uuids: Iterable[str]) -> tuple[DeviceProcess, ...]:
    """Query the driver, which may block. A GPU that does not answer hides no other's processes.

    Args:
        nvml: the module `pynvml`, or an object with its functions.
        uuids: the GPUs.

    Raises:
        nvml.NVMLError: no GPU answers.
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
    """Return the processes of one GPU.

    The clients are read twice, so that a process that starts or ends in between counts as a client.
    Processes that compute with a graphics library, such as Vulkan, are in a separate list.
    """
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    clients = _clients(nvml, handle)
    used: dict[int, int] = {}
    for each in (*nvml.nvmlDeviceGetComputeRunningProcesses(handle), *_graphics(nvml, handle)):
        used[each.pid] = max(used.get(each.pid, 0), each.usedGpuMemory or 0)
    clients |= _clients(nvml, handle)
    return [DeviceProcess(uuid, pid, memory, pid in clients) for pid, memory in used.items()]


def _graphics(nvml: Any, handle: Any) -> Iterable[Any]:
    """Return the graphics processes; none on boards without graphics."""
    try:
        found: Iterable[Any] = nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
    except nvml.NVMLError_NotSupported:
        return ()
    return found


def _clients(nvml: Any, handle: Any) -> set[int]:
    return {each.pid for each in nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)}
