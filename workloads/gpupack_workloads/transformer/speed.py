# SPDX-License-Identifier: Apache-2.0
"""Times steps with the chosen kernels and with torch's, on the same network in the same run."""

from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from gpupack_workloads.timing import seconds_per_call
from gpupack_workloads.training.memory import forget_peak, peak_mib
from gpupack_workloads.transformer.curve import language_of
from gpupack_workloads.transformer.model import use
from gpupack_workloads.transformer.operations import operations
from gpupack_workloads.transformer.parallel import Learner

REPEATS = {"cuda": 4, "cpu": 1}
WARM_UP = {"cuda": 1, "cpu": 0}
TURNS = 2


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Seconds per step of the slowest rank, and this rank's peak of memory."""

    seconds: float
    torch_seconds: float
    peak_mib: int


def measure_speeds(learner: Learner) -> Speeds:
    """Time both kinds of kernels in turn; the network is of no use after it."""
    plan, device = learner.plan, learner.place.device
    kinds = [plan.kernels] if plan.kernels == "torch" else [plan.kernels, "torch"]
    best: dict[str, list[float]] = {kind: [] for kind in kinds}
    forget_peak(device)
    peak = 0
    for _ in range(TURNS if device.type == "cuda" else 1):
        for kind in kinds:
            use(learner.module, operations(kind, compiled=plan.compiled))
            best[kind].append(step_seconds(learner))
            peak = peak or peak_mib(device)
    return Speeds(seconds=min(best[plan.kernels]), torch_seconds=min(best["torch"]), peak_mib=peak)


def step_seconds(learner: Learner) -> float:
    """Return the slowest rank's mean time of a step."""
    plan, device = learner.plan, learner.place.device
    language = language_of(plan, device)
    batch = language.batch(0, rows=plan.batch_size, length=plan.shape.sequence)
    seconds = seconds_per_call(
        partial(learner.step, batch),
        device=device,
        repeats=REPEATS[device.type],
        warm_up=WARM_UP[device.type],
    )
    slowest = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest.item())
