# SPDX-License-Identifier: Apache-2.0
"""Measured speed of each GPU, relative to the median of its model in this cluster.

The figures come from burn-ins that passed. A GPU is as fast as the worse of its figures says. The
speed is rounded to steps: boards of one model differ by some percent, and no two measurements are
equal. The median in use stays unchanged while a new one differs by less than a step, so that one
burn-in changes nothing about other nodes.
"""

import statistics
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpupack_crds.kinds import GpuNode
from gpupack_placement import MAX_SPEED, USUAL_SPEED

STEP: Final = 20
"""Rounding step, per mille."""
LEAST: Final = 4
"""Minimum number of measured GPUs of a model for a meaningful median."""
FIGURES: Final = ("tflops", "memory_gb_per_s")
"""Fields of `status.measured` that depend on the GPU alone."""


class Kind(NamedTuple):
    """A group of figures with a common median."""

    model: str
    simulated: bool
    figure: str


class Figure(NamedTuple):
    """One measured figure of a GPU."""

    gpu: str
    kind: Kind
    value: float


class Speeds:
    """The measured speeds of the GPUs of all nodes."""

    def __init__(self) -> None:
        self._figures: dict[str, tuple[Figure, ...]] = {}
        """Figures by node."""
        self._usual: dict[Kind, float] = {}

    def put(self, name: str, node: GpuNode | None) -> set[str]:
        """Update a node (None: it is gone) and return the nodes whose GPUs have a new speed."""
        figures = tuple(_figures(node)) if node is not None else ()
        before = self._figures.pop(name, ())
        if figures:
            self._figures[name] = figures
        if figures == before:
            return set()
        moved = {kind for kind in {each.kind for each in (*before, *figures)} if self._moves(kind)}
        return {
            other
            for other, known in self._figures.items()
            if any(each.kind in moved for each in known)
        }

    def of(self, name: str) -> Mapping[str, int]:
        """Return the speed per mille by UUID of a node's GPUs.

        A GPU is missing if it was not measured, or if too few GPUs of its model were.
        """
        found: dict[str, int] = {}
        for each in self._figures.get(name, ()):
            usual = self._usual.get(each.kind)
            if usual:
                speed = _rounded(each.value / usual)
                found[each.gpu] = min(speed, found.get(each.gpu, speed))
        return found

    def _moves(self, kind: Kind) -> bool:
        """Update the median in use, and tell whether it changed."""
        values = [
            each.value for known in self._figures.values() for each in known if each.kind == kind
        ]
        usual, before = statistics.median(values or [0.0]), self._usual.get(kind, 0.0)
        if len(values) < LEAST or not usual:
            return self._usual.pop(kind, None) is not None
        if abs(usual - before) * USUAL_SPEED < STEP * before:
            return False
        self._usual[kind] = usual
        return True


def _rounded(part: float) -> int:
    speed = round(part * USUAL_SPEED / STEP) * STEP
    return max(STEP, min(speed, MAX_SPEED))


def _figures(node: GpuNode) -> Iterator[Figure]:
    models = {device.uuid: device.model for device in node.status.devices}
    for each in node.status.measured:
        if each.outcome != "Passed" or each.gpu not in models:
            continue
        for name in FIGURES:
            if value := getattr(each, name):
                yield Figure(each.gpu, Kind(models[each.gpu], each.simulated, name), value)
