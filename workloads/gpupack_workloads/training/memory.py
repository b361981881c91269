# SPDX-License-Identifier: Apache-2.0
"""How much memory work takes at its peak, as torch's allocator counts it."""

import gc

import torch

from gpupack_workloads.memory import MIB


def forget_peak(device: torch.device) -> None:
    """Release what nobody holds and start counting anew."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_mib(device: torch.device) -> int:
    """Return the largest sum of tensors' memory since then, in MiB; a CPU's is not counted: 0."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.max_memory_allocated(device) // MIB)
