# SPDX-License-Identifier: Apache-2.0
"""Times steps with the chosen kernels and with torch's, on the same network in the same run.

Both take turns, and medians of rounds count: power and clocks that one kind leaves meet the other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from gpupack_workloads.timing import seconds_in_turns
from gpupack_workloads.training.memory import forget_peak, peak_mib
from gpupack_workloads.transformer import sdpa
from gpupack_workloads.transformer.language import Batch
from gpupack_workloads.transformer.model import use
from gpupack_workloads.transformer.operations import Operations, operations
from gpupack_workloads.transformer.parallel import Learner
from gpupack_workloads.transformer.parallel.learner import TYPES
from gpupack_workloads.transformer.verification import language_of

REPEATS = {"cuda": 2, "cpu": 1}
ROUNDS = {"cuda": 4, "cpu": 1}
WARM_UP = {"cuda": 1, "cpu": 0}


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Seconds per step of the slowest rank, and this rank's peak of memory.

    Attributes:
        torch_attention: which of torch's attentions was timed.
    """

    seconds: float
    torch_seconds: float
    torch_attention: str
    peak_mib: int


def measure_speeds(learner: Learner) -> Speeds:
    """Time both kinds of kernels in turn; the network is of no use after it."""
    plan, device = learner.plan, learner.world_rank.device
    batch = language_of(plan, device).batch(0, rows=plan.batch_size, length=plan.shape.sequence)
    works = {
        kind: partial(step_with, operations(kind, compiled=plan.compiled), learner, batch)
        for kind in dict.fromkeys((plan.kernels, "torch"))
    }
    peak = peak_of(works[plan.kernels], device)
    seconds = slowest(
        seconds_in_turns(
            works,
            device=device,
            repeats=REPEATS[device.type],
            rounds=ROUNDS[device.type],
            warm_up=WARM_UP[device.type],
        ),
        device,
    )
    return Speeds(
        seconds=seconds[plan.kernels],
        torch_seconds=seconds["torch"],
        torch_attention=torch_attention(learner),
        peak_mib=peak,
    )


def step_with(made: Operations, learner: Learner, batch: Batch) -> torch.Tensor:
    """Take a step by one kind of kernels."""
    use(learner.module, made)
    return learner.step(batch)


def peak_of(work: Callable[[], object], device: torch.device) -> int:
    """Return what memory a step takes at its peak; on a CPU, where none is counted, take none."""
    if device.type != "cuda":
        return 0
    forget_peak(device)
    work()
    return peak_mib(device)


def slowest(seconds: dict[str, float], device: torch.device) -> dict[str, float]:
    """Return the times of the slowest rank."""
    times = torch.tensor(list(seconds.values()), dtype=torch.float64, device=device)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return dict(zip(seconds, times.tolist(), strict=True))


def torch_attention(learner: Learner) -> str:
    """Return the name of torch's attention for this network."""
    shape = learner.plan.shape
    backend = sdpa.backend_for(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        width=shape.head_width,
        dtype=TYPES[learner.plan.dtype],
        device=learner.world_rank.device,
    )
    return sdpa.name_of(backend)
