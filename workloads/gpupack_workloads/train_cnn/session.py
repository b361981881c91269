# SPDX-License-Identifier: Apache-2.0
"""Runs every technique and compares them."""

import logging
import math

from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.errors import WrongResult
from gpupack_workloads.memory import require_memory
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.train_cnn import files, synthetic
from gpupack_workloads.train_cnn.gradients import (
    ACCUMULATION_BOUND,
    AMP_BOUND,
    PARAMETER_BOUNDS,
    Gradients,
    compare,
)
from gpupack_workloads.train_cnn.images import Split
from gpupack_workloads.train_cnn.learning import TechniqueResult, learn
from gpupack_workloads.train_cnn.memory_estimate import making_bytes, training_bytes
from gpupack_workloads.train_cnn.options import CnnOptions
from gpupack_workloads.train_cnn.plan import EpochPlan, Plan, plan_for, techniques

logger = logging.getLogger(__name__)

# A guess is right in one of ten cases. Made-up classes are easy; real ones depend on the steps.
ACCURACY_BOUND = {"synthetic": 0.7, "files": 0.12}
# So many images are needed for this check; shorter trainings are not checked.
ENOUGH_IMAGES = {"synthetic": 512, "files": 20_000}
LOSS_BOUND = {"synthetic": 1.0, "files": 2.3}


def run(options: CnnOptions) -> Result:
    """Train with one technique after the other."""
    device = choose_device(require_gpu=options.require_gpu)
    plan = plan_for(options, device)
    doing = f"training on batches of {plan.batch_size} images"
    check_memory(options, plan, device, doing=doing)
    learnt = {}
    with memory_errors(doing):
        data = load(options, plan)
        gradients = compare(plan, data.train, device.torch)
        for technique in techniques(plan):
            found = learn(technique, plan, train=data.train, test=data.test, device=device.torch)
            logger.info("%s: %s", technique.name, found)
            check(technique.name, found, source(options), seen=plan.steps * plan.batch_size)
            learnt[technique.name] = found
    return summarise(learnt, gradients, options=options, plan=plan, device=device)


def check_memory(options: CnnOptions, plan: Plan, device: Device, *, doing: str) -> None:
    """Refuse before any work what surely does not fit; the images are made before the training."""
    for on_device, on_host in (
        (0, making_bytes(options, plan)),
        (training_bytes(options, plan), 0),
    ):
        require_memory(
            device, doing=doing, on_device=on_device, on_host=on_host, smaller="--batch-size"
        )


def source(options: CnnOptions) -> str:
    """Return where the images come from."""
    return "synthetic" if options.made_up else "files"


def load(options: CnnOptions, plan: Plan | EpochPlan) -> Split:
    """Read images, or make some up."""
    if options.data is not None:
        return files.read(options.dataset, options.data, checksums=options.checksums)
    return synthetic.make(options, train=plan.train, test=plan.test)


def check(name: str, learnt: TechniqueResult, data: str, *, seen: int) -> None:
    """Refuse a technique with which the network does not learn.

    Raises:
        WrongResult: the loss is no number, or it or the accuracy is no better than its bound.
    """
    good = learnt.loss <= LOSS_BOUND[data] and learnt.accuracy >= ACCURACY_BOUND[data]
    if not math.isfinite(learnt.loss) or (seen >= ENOUGH_IMAGES[data] and not good):
        raise WrongResult(
            f"{name}: loss {learnt.loss:.4g} and accuracy {learnt.accuracy:.3f} after training;"
            f" expected at most {LOSS_BOUND[data]} and at least {ACCURACY_BOUND[data]}"
        )


def summarise(
    learnt: dict[str, TechniqueResult],
    gradients: Gradients,
    *,
    options: CnnOptions,
    plan: Plan,
    device: Device,
) -> Result:
    """Make the result out of what was found."""
    rows = [row(name, found, plan) for name, found in learnt.items()]
    rate = plan.batch_size / learnt["channels_last"].step_seconds
    return Result(
        workload="train-cnn",
        headline=headline(f"{rate:.0f} images/s with AMP", simulated=device.simulated),
        verified=True,
        simulated=device.simulated,
        metrics={
            "images_per_s": round(rate, 2),
            **ratios(learnt),
            **bounds(learnt["accumulation"], gradients, source(options)),
            "loss_scale": learnt["amp"].loss_scale,
            "data": options.look,
            "source": source(options),
            "batch_size": plan.batch_size,
            "steps": plan.steps,
            "accumulate": plan.accumulate,
            **flat(rows),
            **describe(device),
        },
        rows=rows,
    )


def bounds(last: TechniqueResult, gradients: Gradients, data: str) -> dict[str, Scalar]:
    """Return what was checked, each figure with its bound."""
    return {
        "accuracy": round(last.accuracy, 4),
        "accuracy_bound": ACCURACY_BOUND[data],
        "loss": round(last.loss, 5),
        "loss_bound": LOSS_BOUND[data],
        "error": gradients.accumulation_error,
        "error_bound": ACCUMULATION_BOUND,
        "amp_error": gradients.amp_error,
        "amp_error_bound": AMP_BOUND,
        "parameter_error": gradients.parameter_error,
        "parameter_error_bound": PARAMETER_BOUNDS["fp32"],
        "amp_parameter_error": gradients.amp_parameter_error,
        "amp_parameter_error_bound": PARAMETER_BOUNDS["fp16"],
        "amp_zero_gradient_share": round(gradients.amp_zero_share, 6),
        "unscaled_zero_gradient_share": round(gradients.unscaled_zero_share, 6),
    }


def ratios(learnt: dict[str, TechniqueResult]) -> dict[str, Scalar]:
    """Return what techniques gain: time before over after, memory after over before."""
    plain, tuned, amp = learnt["fp32"], learnt["cudnn_benchmark"], learnt["amp"]
    ordered, parts = learnt["channels_last"], learnt["accumulation"]
    figures: dict[str, Scalar] = {
        "cudnn_benchmark_speedup": round(plain.step_seconds / tuned.step_seconds, 3),
        "amp_speedup": round(tuned.step_seconds / amp.step_seconds, 3),
        "channels_last_speedup": round(amp.step_seconds / ordered.step_seconds, 3),
        "accumulation_speedup": round(ordered.step_seconds / parts.step_seconds, 3),
    }
    if plain.peak_mib:
        figures["amp_memory_share"] = round(amp.peak_mib / tuned.peak_mib, 3)
        figures["accumulation_memory_share"] = round(parts.peak_mib / ordered.peak_mib, 3)
    return figures


def row(name: str, found: TechniqueResult, plan: Plan) -> dict[str, Scalar]:
    """Return one technique's line of the table."""
    return {
        "technique": name,
        "step_ms": round(found.step_seconds * 1e3, 4),
        "images_per_s": round(plan.batch_size / found.step_seconds, 2),
        "peak_memory_mib": found.peak_mib,
        "loss": round(found.loss, 5),
        "accuracy": round(found.accuracy, 4),
        "loss_scale": found.loss_scale,
    }


def flat(rows: list[dict[str, Scalar]]) -> dict[str, Scalar]:
    """Return time and memory of every technique by name, for the termination message."""
    return {
        f"{line['technique']}_{figure}": line[figure]
        for line in rows
        for figure in ("step_ms", "peak_memory_mib")
    }
