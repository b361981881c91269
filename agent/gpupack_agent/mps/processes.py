# SPDX-License-Identifier: Apache-2.0
"""Which processes use a GPU, how much of its memory, and whose they are.

NVML tells of each client of MPS what it has (on an H200 with driver 580), and which processes are
clients. PIDs are those of the reader's namespace, so it has to be the host's; the kernel says of
each in which pod's cgroup it is.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable
from typing import Any

_POD = re.compile(r"pod([0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
PROC = pathlib.Path("/proc")


@dataclasses.dataclass(frozen=True, slots=True)
class GpuProcess:
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


def read(nvml: Any, uuids: Iterable[str]) -> tuple[GpuProcess, ...]:
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
            GpuProcess(uuid, each.pid, each.usedGpuMemory or 0, each.pid in clients)
            for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ]
    return tuple(found)


def pod_of(pid: int, proc: pathlib.Path = PROC) -> str | None:
    """The UID of the pod that a process belongs to; None: of none, or it is gone."""
    try:
        found = _POD.search((proc / str(pid) / "cgroup").read_text())
    except OSError:
        return None
    return found[1].replace("_", "-") if found else None
