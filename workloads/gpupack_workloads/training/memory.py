# SPDX-License-Identifier: Apache-2.0
"""Peak memory by torch's allocator."""

import gc

import torch

from gpupack_workloads.memory import MIB


def forget_peak(device: torch.device) -> None:
    """Release unused memory and restart the count."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_mib(device: torch.device) -> int:
    """Return the largest sum of tensors' memory since then, in MiB; a CPU's is not counted: 0."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.max_memory_allocated(device) // MIB)
