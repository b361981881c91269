# SPDX-License-Identifier: Apache-2.0
"""Result of the training."""

from dataclasses import dataclass

from gpupack_workloads.devices import describe
from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.resnet50.model import PARAMETERS
from gpupack_workloads.resnet50.plan import Plan
from gpupack_workloads.resnet50.reference import Learning
from gpupack_workloads.resnet50.speed import Speeds
from gpupack_workloads.results import Result, Scalar, headline


@dataclass(frozen=True, kw_only=True)
class TrainingFigures:
    """Findings of one run."""

    learning: Learning
    first_loss: float
    last_loss: float
    speeds: Speeds


def summarise(found: TrainingFigures, plan: Plan, rank: Rank) -> Result:
    """Make the result."""
    simulated = rank.device.simulated
    figures = rates(found.speeds, plan, rank)
    return Result(
        workload="resnet50",
        headline=headline(
            f"{figures['images_per_s']:.0f} images/s, {rank.ranks} ranks", simulated=simulated
        ),
        verified=True,
        simulated=simulated,
        metrics={
            **figures,
            "ranks": rank.ranks,
            **settings(plan),
            "peak_memory_mib": found.speeds.peak_mib,
            "error": found.learning.loss,
            "error_bound": found.learning.bounds.loss,
            "gradient_error": round(found.learning.gradient, 6),
            "gradient_error_bound": found.learning.bounds.gradient,
            "gradient_length_error": round(found.learning.length, 6),
            "gradient_length_error_bound": found.learning.bounds.length,
            "first_loss": round(found.first_loss, 4),
            "last_loss": round(found.last_loss, 6),
            "backend": rank.backend,
            **describe(rank.device),
        },
        rows=scaling(found.speeds, plan),
    )


def rates(speeds: Speeds, plan: Plan, rank: Rank) -> dict[str, Scalar]:
    """Return images per second of all ranks, and by how much they are faster than one."""
    last = scaling(speeds, plan)[-1]
    uncoupled = rank.ranks * plan.batch_size / speeds.uncoupled_seconds
    return {
        "images_per_s": last["images_per_s"],
        "scaling_ratio": last["scaling_ratio"],
        "one_gpu_images_per_s": round(plan.batch_size / speeds.together_seconds[1], 2),
        "uncoupled_images_per_s": round(uncoupled, 2),
    }


def scaling(speeds: Speeds, plan: Plan) -> list[dict[str, Scalar]]:
    """Return a row for each number of ranks that trained together."""
    one = speeds.together_seconds[1]
    return [
        {
            "ranks": count,
            "step_ms": round(seconds * 1e3, 4),
            "images_per_s": round(count * plan.batch_size / seconds, 2),
            "scaling_ratio": round(count * one / seconds, 4),
        }
        for count, seconds in speeds.together_seconds.items()
    ]


def settings(plan: Plan) -> dict[str, Scalar]:
    """Return the requested settings."""
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
