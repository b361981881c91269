# SPDX-License-Identifier: Apache-2.0
"""Checks that ranks exchange mean gradients and stay replicas."""

from typing import cast

import torch
import torch.distributed as dist

from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.resnet50.data_parallel import Flat


def wrong_means(module: torch.nn.Module, rank: Rank, *, bucket_mib: int) -> list[int]:
    """Exchange gradients of which every rank knows the mean; return where another one came."""
    flat = Flat(module, rank, bucket_mib=bucket_mib)
    parameters = list(module.parameters())
    module.zero_grad()
    known_gradients(parameters, rank.index).backward()
    flat.synchronise()
    wrong = [
        place
        for place, parameter in enumerate(parameters)
        if not is_about(cast("torch.Tensor", parameter.grad), (rank.ranks - 1) / 2 + place)
    ]
    module.zero_grad()
    return wrong


def is_about(gradient: torch.Tensor, mean: float) -> bool:
    """Return whether all values equal this one, within the rounding of a division by the ranks."""
    return bool(torch.allclose(gradient, torch.full_like(gradient, mean), rtol=1e-6))


def check_means(wrong: list[int], rank: Rank) -> None:
    """Refuse an exchange that gave wrong means.

    Raises:
        WrongResult: it did.
    """
    if wrong:
        raise WrongResult(
            f"rank {rank.index}: the exchange over {rank.ranks} ranks gave a wrong mean gradient of"
            f" {len(wrong)} parameters, the first of them number {wrong[0]}"
        )


def known_gradients(parameters: list[torch.nn.Parameter], first: int) -> torch.Tensor:
    """Return what has the gradient `first` by the first parameter, one more by each next one."""
    weighted = [parameter.sum() * (first + place) for place, parameter in enumerate(parameters)]
    return torch.stack(weighted).sum()


def check_replicas(module: torch.nn.Module, rank: Rank) -> None:
    """Compare every rank's parameters, bit by bit as a sum of their patterns.

    Raises:
        WrongResult: the replicas have drifted apart.
    """
    patterns = [p.detach().reshape(-1).view(torch.int32).sum() for p in module.parameters()]
    mine = torch.stack(patterns)
    least, most = mine.clone(), mine.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    if not torch.equal(least, most):
        raise WrongResult(f"rank {rank.index}: the replicas' parameters differ after training")
