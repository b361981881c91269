# SPDX-License-Identifier: Apache-2.0
"""Detection of slow GPUs, compared with others of their model in this cluster.

Only GPUs that passed their burn-in count; simulated GPUs are compared only with one another.
"""

import dataclasses
import statistics
from collections.abc import Iterable
from typing import Final

from gpupack_crds.gpunode import Measured
from gpupack_crds.kinds import GpuNode

SLOW_FRACTION: Final = 0.9
"""Fraction of the median below which a GPU is used last: NVIDIA's boards of one model differ by a
few percent (docs/workloads), so a difference of a tenth is no accident.
"""

MIN_OTHERS: Final = 3
"""Smallest number of other GPUs of the model for which a median is meaningful."""

FIGURES: Final = (
    ("tflops", "TFLOP/s"),
    ("memory_gb_per_s", "GB/s of memory"),
)
"""Measurements that depend on the GPU alone; copies from and to the host also depend on its slot.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """Measurement of one GPU of a model."""

    model: str
    measured: Measured


class Fleet:
    """Measurements of all GPUs of the cluster."""

    def __init__(self) -> None:
        self._samples: dict[str, tuple[Sample, ...]] = {}

    def put(self, node: GpuNode) -> None:
        """Store the measurements of a node's GPUs."""
        if found := _samples(node):
            self._samples[node.metadata.name] = found
        else:
            self._samples.pop(node.metadata.name, None)

    def remove(self, node: str) -> None:
        """Remove a node that no longer exists."""
        self._samples.pop(node, None)

    def clear(self) -> None:
        """Remove all nodes."""
        self._samples.clear()

    def slowness(self, model: str, measured: Measured) -> str:
        """Return why the GPU is slow for its model.

        An empty text means that it is not slow, or that too few others are known.
        """
        others = [
            sample.measured
            for samples in self._samples.values()
            for sample in samples
            if sample.model == model
            and sample.measured.simulated == measured.simulated
            and sample.measured.gpu != measured.gpu
        ]
        for name, unit in FIGURES:
            own, theirs = getattr(measured, name), _known(others, name)
            if own is None or len(theirs) < MIN_OTHERS:
                continue
            usual = statistics.median(theirs)
            if own < SLOW_FRACTION * usual:
                return f"{own:g} {unit}; the median of {len(theirs)} others is {usual:g}"
        return ""


def _samples(node: GpuNode) -> tuple[Sample, ...]:
    models = {device.uuid: device.model for device in node.status.devices}
    passed = (each for each in node.status.measured if each.outcome == "Passed")
    return tuple(Sample(models[each.gpu], each) for each in passed if each.gpu in models)


def _known(samples: Iterable[Measured], name: str) -> list[float]:
    return [value for each in samples if (value := getattr(each, name)) is not None]
