# SPDX-License-Identifier: Apache-2.0
"""Units and names. One GPU is 1000 milli-GPU, one core 1000 milli-CPU; memory is in MiB."""

from typing import Final, NewType

MilliGpu = NewType("MilliGpu", int)
MilliCpu = NewType("MilliCpu", int)
MiB = NewType("MiB", int)

NodeName = NewType("NodeName", str)
DeviceUuid = NewType("DeviceUuid", str)
Holder = NewType("Holder", str)
"""The holder of a placement, such as a pod's UID. The caller builds it, always in one place."""

WHOLE_GPU: Final = MilliGpu(1000)
NO_CPU: Final = MilliCpu(0)
NO_PARENT: Final = DeviceUuid("")
NO_MEMORY: Final = MiB(0)
MIB_PER_GIB: Final = 1 << 10


def memory_text(mebibytes: int) -> str:
    """Write memory exactly, as manifests do: «40 GiB», «1500 MiB»."""
    whole, rest = divmod(mebibytes, MIB_PER_GIB)
    return f"{mebibytes} MiB" if rest or not whole else f"{whole} GiB"
