# SPDX-License-Identifier: Apache-2.0
"""Checks whether the GPUs of a gang can access one another's memory."""

import itertools
import os

import torch

from gpupack_workloads.distributed.rank import Rank


def can_access_peers(rank: Rank) -> bool:
    """Return whether all ranks are processes of this worker and all their GPUs are peers.

    Every rank gets the same answer, because each sees all GPUs of the worker.
    """
    if rank.backend != "nccl" or rank.ranks == 1:
        return False
    if int(os.environ["LOCAL_WORLD_SIZE"]) < rank.ranks:
        return False
    return all(
        torch.cuda.can_device_access_peer(one, other)
        for one, other in itertools.permutations(range(rank.ranks), 2)
    )
