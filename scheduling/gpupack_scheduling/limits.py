# SPDX-License-Identifier: Apache-2.0
"""The largest amounts that are believed.

Users write quantities such as 9E into pods, and core counts in 64 bits (what a GPU has, in 32):
what is larger than any machine is cut or refused here, so that sums over all pods stay within them.
"""

from typing import Final

import gpupack_core as core
from gpupack_crds import devices, gpunode

MAX_PER_POD: Final = 1 << 40
"""Milli-CPU or MiB of one pod or node."""

MAX_GPU_MEMORY: Final = core.MiB(devices.MAX_MEMORY_MIB)
"""16 TiB on one GPU."""

MAX_GPUS: Final = gpunode.MAX_GPUS
"""GPUs of one node; as many as a GPUNode may list."""

MAX_PODS: Final = 1 << 20
"""Of one node; the kubelet's default is 110."""

MAX_CPU: Final = core.MilliCpu(1 << 24)
"""16,777 cores: several times the largest machine. A pod that asks for more is refused."""

MAX_MEMORY: Final = core.MiB(1 << 27)
"""128 TiB, likewise."""


def believed(amount: int) -> int:
    """The amount, or the most that is believed: either way too much for any node."""
    return min(amount, MAX_PER_POD)


def believed_on_gpu(memory: core.MiB) -> core.MiB:
    """The memory, or just more than the most that is believed: too much for any GPU."""
    return min(memory, core.MiB(MAX_GPU_MEMORY + 1))
