# SPDX-License-Identifier: Apache-2.0
"""What the training found, as a result."""

from dataclasses import dataclass

from gpupack_workloads.devices import describe
from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.resnet50.model import PARAMETERS
from gpupack_workloads.resnet50.plan import Plan
from gpupack_workloads.resnet50.reference import Learning
from gpupack_workloads.resnet50.speed import Speeds
from gpupack_workloads.results import Result, Scalar, headline


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one run found."""

    learning: Learning
    first_loss: float
    last_loss: float
    speeds: Speeds


def summarise(found: Found, plan: Plan, rank: Rank) -> Result:
    """Make the result."""
    simulated = rank.device.simulated
    total = rates(found.speeds, plan, rank)["images_per_s"]
    return Result(
        workload="resnet50",
        headline=headline(f"{total:.0f} images/s, {rank.ranks} ranks", simulated=simulated),
        verified=True,
        simulated=simulated,
        metrics={
            **rates(found.speeds, plan, rank),
            "ranks": rank.ranks,
            **settings(plan),
            "peak_memory_mib": found.speeds.peak_mib,
            "error": found.learning.error,
            "error_bound": found.learning.bound,
            "first_loss": round(found.first_loss, 4),
            "last_loss": round(found.last_loss, 6),
            "backend": rank.backend,
            **describe(rank.device),
        },
    )


def rates(speeds: Speeds, plan: Plan, rank: Rank) -> dict[str, float]:
    """Return images per second, and by how much more GPUs are faster than one."""
    one = plan.batch_size / speeds.alone_seconds
    total = rank.ranks * plan.batch_size / speeds.together_seconds
    return {
        "images_per_s": round(total, 2),
        "scaling_ratio": round(total / one, 4),
        "one_gpu_images_per_s": round(one, 2),
        "uncoupled_images_per_s": round(rank.ranks * plan.batch_size / speeds.uncoupled_seconds, 2),
    }


def settings(plan: Plan) -> dict[str, Scalar]:
    """Return what was asked for."""
    return {
        "batch_size": plan.batch_size,
        "size": plan.size,
        "steps": plan.steps,
        "dtype": plan.precision.name,
        "channels_last": plan.channels_last,
        "compile": plan.compile_mode,
        "coupling": plan.coupling,
        "bucket_mib": plan.bucket_mib,
        "parameters": PARAMETERS,
    }
