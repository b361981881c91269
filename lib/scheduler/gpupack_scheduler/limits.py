# SPDX-License-Identifier: Apache-2.0
"""The largest amounts that are accepted.

Users write quantities such as 9E into pods. Placement counts in 64 bits, and the contents of a GPU
in 32 bits. This module cuts or refuses amounts that are larger than any machine, so that sums over
all pods do not overflow.
"""

from typing import Final

from gpupack_crds import devices, gpunode
from gpupack_placement import MiB, MilliCpu

MAX_PER_POD: Final = 1 << 40
"""Milli-CPU or MiB of one pod or node."""

MAX_GPU_MEMORY: Final = MiB(devices.MAX_MEMORY_MIB)
"""Memory of one GPU: 16 TiB."""

MAX_GPUS: Final = gpunode.MAX_GPUS
"""GPUs of one node; as many as a GPUNode may list."""

MAX_PODS: Final = 1 << 20
"""Pods of one node; the kubelet's default is 110."""

MAX_CPU: Final = MilliCpu(1 << 24)
"""CPU of one pod: 16,777 cores, several times the largest machine. A larger request is refused."""

MAX_MEMORY: Final = MiB(1 << 27)
"""Memory of one pod: 128 TiB. A larger request is refused."""


def believed(amount: int) -> int:
    """Return the amount, at most MAX_PER_POD. Either is too much for any node."""
    return min(amount, MAX_PER_POD)


def believed_on_gpu(memory: MiB) -> MiB:
    """Return the memory, at most 1 MiB more than the maximum: too much for any GPU."""
    return min(memory, MiB(MAX_GPU_MEMORY + 1))
