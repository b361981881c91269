# SPDX-License-Identifier: Apache-2.0
"""Replicas by torch's DistributedDataParallel."""

import inspect

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpupack_workloads.distributed.rank import Rank


def replicated(
    network: nn.Module, rank: Rank, *, bucket_mib: int, group: dist.ProcessGroup | None = None
) -> nn.Module:
    """Wrap a network in torch's DDP, over a group of ranks or all."""
    wrapped: nn.Module = DistributedDataParallel(
        network,
        device_ids=None if rank.device.simulated else [rank.device.torch.index],
        bucket_cap_mb=bucket_mib,
        process_group=group,
        gradient_as_bucket_view=True,
        static_graph=True,
        **without_buffers(),
    )
    return wrapped


def without_buffers() -> dict[str, bool]:
    """Return what tells this torch's DDP not to send buffers with every step."""
    known = inspect.signature(DistributedDataParallel).parameters
    word = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    return {word: False}
