# SPDX-License-Identifier: Apache-2.0
"""Result of the training."""

from dataclasses import dataclass

from gpupack_workloads.devices import describe
from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.training.peaks import bf16_peak_tflops
from gpupack_workloads.transformer.plan import Plan, flops_per_token
from gpupack_workloads.transformer.speed import Speeds
from gpupack_workloads.transformer.training import Trained
from gpupack_workloads.transformer.verification import CurveErrors, is_independent


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """Findings of one run; without agreement if none was requested."""

    curve_errors: CurveErrors | None
    trained: Trained
    speeds: Speeds


def summarise(found: RunFigures, plan: Plan, rank: Rank) -> Result:
    """Make the result."""
    simulated = rank.device.simulated
    rate = plan.batch_size * plan.shape.sequence / found.speeds.seconds
    return Result(
        workload="transformer",
        headline=headline(
            f"{rate:.0f} tokens/s, {plan.parallel} over {rank.ranks} ranks", simulated=simulated
        ),
        verified=is_verified(found.curve_errors, plan, rank.ranks),
        simulated=simulated,
        metrics={
            "tokens_per_s": round(rate, 2),
            **shares(rate, plan, rank),
            "kernels_ratio": round(found.speeds.torch_seconds / found.speeds.seconds, 4),
            "step_ms": round(found.speeds.seconds * 1e3, 3),
            "torch_step_ms": round(found.speeds.torch_seconds * 1e3, 3),
            "torch_attention": found.speeds.torch_attention,
            "peak_memory_mib": found.speeds.peak_mib,
            **agreed(found.curve_errors),
            **trained(found.trained),
            "parallel": plan.parallel,
            "ranks": rank.ranks,
            "kernels": plan.kernels,
            **settings(plan),
            "backend": rank.backend,
            **describe(rank.device),
        },
        rows=[
            {"step": step, "loss": loss}
            for step, loss in enumerate(found.trained.losses, start=found.trained.first)
        ],
    )


def is_verified(curve_errors: CurveErrors | None, plan: Plan, ranks: int) -> bool:
    """Return whether enough was compared, with something else, and came out near."""
    return curve_errors is not None and curve_errors.verifies and is_independent(plan, ranks)


def shares(rate: float, plan: Plan, rank: Rank) -> dict[str, Scalar]:
    """Return operations per second and GPU, and their share of the peak where that is known."""
    tflops = rate * flops_per_token(plan.shape) / rank.ranks / 1e12
    figures: dict[str, Scalar] = {"tflops_per_gpu": round(tflops, 4)}
    peak = bf16_peak_tflops(rank.device.name)
    if peak is not None and plan.dtype == "bf16":
        figures |= {"mfu": round(tflops / peak, 4), "peak_tflops": peak}
    return figures


def agreed(curve_errors: CurveErrors | None) -> dict[str, Scalar]:
    """Return how close to the reference the losses are."""
    if curve_errors is None:
        return {}
    return {
        "error": curve_errors.error,
        "error_bound": curve_errors.bound,
        "gradient_error": curve_errors.gradient_error,
        "gradient_error_bound": curve_errors.gradient_bound,
        "weight_error": curve_errors.weight_error,
        "weight_error_bound": curve_errors.weight_bound,
        "check_steps": curve_errors.steps,
    }


def trained(found: Trained) -> dict[str, Scalar]:
    """Return what the training did."""
    figures: dict[str, Scalar] = {"resumed_at_step": found.first}
    if found.losses:
        figures |= {"first_loss": found.losses[0], "last_loss": found.losses[-1]}
    return figures | {"save_seconds": round(found.save_seconds, 3)}


def settings(plan: Plan) -> dict[str, Scalar]:
    """Return the requested settings."""
    shape = plan.shape
    return {
        "layers": shape.layers,
        "width": shape.width,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "inner": shape.inner,
        "vocabulary": shape.vocabulary,
        "sequence": shape.sequence,
        "batch_size": plan.batch_size,
        "micro_batches": plan.parts,
        "steps": plan.steps,
        "dtype": plan.dtype,
        "recompute": plan.recompute,
        "compiled": plan.compiled,
    }
