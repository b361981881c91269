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
    """Ask the driver; it may block.

    Args:
        nvml: the module `pynvml`, or anything with its functions.
        uuids: the GPUs.

    Raises:
        NVMLError: of the module.
    """
    found = []
    for uuid in uuids:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        clients = {each.pid for each in nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)}
        found += [
            DeviceProcess(uuid, each.pid, each.usedGpuMemory or 0, each.pid in clients)
            for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ]
    return tuple(found)
