# SPDX-License-Identifier: Apache-2.0
"""How fast each GPU was measured to be, against the median of its model in this cluster.

Figures are those of burn-ins that passed. A GPU is as fast as the worse of its figures says, in
steps: boards of one model differ by some percent, and no two measurements are alike. The median
that counts is left as it is while a new one differs by less than a step, so that a burn-in changes
nothing about other nodes.
"""

import statistics
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpupack_core import MAX_SPEED, USUAL_SPEED
from gpupack_crds.kinds import GpuNode

STEP: Final = 20
"""Per mille."""
LEAST: Final = 4
"""GPUs of a model that were measured, without which a median says nothing."""
FIGURES: Final = ("tflops", "memory_gb_per_s")
"""Those of `status.measured` that the GPU alone decides."""


class Kind(NamedTuple):
    """Of whose figures there is one median."""

    model: str
    simulated: bool
    figure: str


class Figure(NamedTuple):
    """One of a GPU."""

    gpu: str
    kind: Kind
    value: float


class Speeds:
    """Of the GPUs of all nodes."""

    def __init__(self) -> None:
        self._figures: dict[str, tuple[Figure, ...]] = {}
        """By node."""
        self._usual: dict[Kind, float] = {}

    def put(self, name: str, node: GpuNode | None) -> set[str]:
        """Take in a node, or that it is gone; the nodes whose GPUs count as otherwise fast now."""
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
        """Per mille by UUID; a GPU that is missing was not measured, or against too few others."""
        found: dict[str, int] = {}
        for each in self._figures.get(name, ()):
            usual = self._usual.get(each.kind)
            if usual:
                speed = _rounded(each.value / usual)
                found[each.gpu] = min(speed, found.get(each.gpu, speed))
        return found

    def _moves(self, kind: Kind) -> bool:
        """Whether another median counts from now on."""
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
