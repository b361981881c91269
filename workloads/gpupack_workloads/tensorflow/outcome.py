# SPDX-License-Identifier: Apache-2.0
"""Outcome of a training: whether it is verified, and the result."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpupack_workloads.results import Result, Scalar, headline

GRADIENT_BOUND = 1e-3
ACCURACY_BOUND = 0.7
LOSS_BOUND = 1.0


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One pass over all images.

    Attributes:
        loss: mean per image over the epoch, each before the step that learns from it.
        seconds: on this worker's clock, until the last step's sum has come.
        images: learnt from, by all workers.
    """

    loss: float
    seconds: float
    images: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """Outcome of a training.

    Attributes:
        gradient_error: of the replicas' sum, before anything was learnt.
        epochs: epochs of the training.
        accuracy: on images that were not learnt from.
        different_weights: replicas that have others than the first one.
        peak_mib: MiB of tensors, of the GPU that had most; None: there is no GPU.
    """

    gradient_error: float
    epochs: Sequence[Epoch]
    accuracy: float
    different_weights: int
    peak_mib: int | None

    def faults(self, limit_mib: int) -> list[str]:
        """Return what is wrong, in words; nothing: it is verified."""
        loss, peak = self.epochs[-1].loss, self.peak_mib or 0
        checks = (
            (
                self.gradient_error <= GRADIENT_BOUND,
                f"the replicas' gradient is {self.gradient_error:.3g} from one device's",
            ),
            (
                not self.different_weights,
                f"{self.different_weights} replicas have other weights than the first one",
            ),
            (loss <= LOSS_BOUND, f"the loss is {loss:.4g} after training, above {LOSS_BOUND}"),
            (
                self.accuracy >= ACCURACY_BOUND,
                f"{self.accuracy:.3f} of the test images are right, fewer than {ACCURACY_BOUND}",
            ),
            (
                not limit_mib or peak <= limit_mib,
                f"tensors had {peak} MiB of a GPU, above the limit of {limit_mib} MiB",
            ),
        )
        return [text for holds, text in checks if not holds]


def summarise(
    found: Found, about: Mapping[str, Scalar], *, simulated: bool, verified: bool
) -> Result:
    """Make the result out of what was found."""
    # The first epoch compiles. Workers wait for each other within epochs, so only the sum is fair.
    timed = found.epochs[1:] or found.epochs
    rate = sum(epoch.images for epoch in timed) / sum(epoch.seconds for epoch in timed)
    metrics: dict[str, Scalar] = {
        "accuracy": round(found.accuracy, 4),
        "accuracy_bound": ACCURACY_BOUND,
        "loss": found.epochs[-1].loss,
        "loss_bound": LOSS_BOUND,
        "gradient_error": found.gradient_error,
        "gradient_error_bound": GRADIENT_BOUND,
        "different_weights": found.different_weights,
        "images_per_s": round(rate, 1),
        "images_per_epoch": found.epochs[0].images,
        "epochs": len(found.epochs),
    }
    if found.peak_mib is not None:
        metrics["peak_memory_mib"] = found.peak_mib
    figure = f"{rate:.0f} images/s, {about['replicas']} replicas"
    return Result(
        workload="tensorflow",
        headline=headline(figure if verified else "wrong result", simulated=simulated),
        verified=verified,
        simulated=simulated,
        metrics=numbers(metrics | dict(about)),
        rows=[
            numbers({"epoch": number, "loss": epoch.loss, "seconds": round(epoch.seconds, 4)})
            for number, epoch in enumerate(found.epochs)
        ],
    )


def numbers(metrics: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return metrics without NaN and infinities, which JSON cannot represent."""
    return {
        name: value
        for name, value in metrics.items()
        if not isinstance(value, float) or math.isfinite(value)
    }
