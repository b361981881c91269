# SPDX-License-Identifier: Apache-2.0
"""Capacity that no job used, by cause.

Free capacity is integrated over the measured part of the run, from the samples that have its
causes. Work lost with a node or GPU was held at the time, so it is added to what was free. Without
a clock nothing can be integrated: the end of the run counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpupack_simulator.output import capacity
from gpupack_simulator.output.series import Steps
from gpupack_simulator.output.units import UNITS, Unit
from gpupack_simulator.record import Cause, Loss, Run, Sample, TimeUnit


@dataclass(frozen=True, slots=True)
class Waste:
    """The wasted capacity. `gpu_time` and `total` are in `unit`, such as «GPU-hours».

    Causes that did not occur are left out.
    """

    unit: str
    key: str
    gpu_time: Mapping[Cause, float]
    total: float
    """Whole capacity over the measured time."""

    def percent(self, cause: Cause) -> float:
        """Return the percent of the whole capacity that a cause wasted."""
        return 100 * self.gpu_time.get(cause, 0.0) / self.total if self.total else 0.0


def waste(run: Run) -> Waste:
    """Return what was wasted; empty if no sample has causes and nothing was lost."""
    unit = UNITS[run.time_unit]
    sampled = any(sample.free_by_cause for sample in run.samples)
    samples = run.samples if sampled else ()
    at_end = run.time_unit is TimeUnit.ARRIVAL
    free = _at_end(samples) if at_end else _over_time(run, samples)
    for cause in (Cause.KILLED_WORK, Cause.PREEMPTED, Cause.MOVED, Cause.DRAINED):
        free[cause] = 0.0 if at_end else sum(loss.milli_time for loss in losses(run, cause))
    known = {cause: free[cause] / unit.per_gpu_time for cause in Cause if free.get(cause)}
    return Waste(unit.gpu_time, unit.gpu_time_key, known, _total(run, unit))


def losses(run: Run, cause: Cause) -> list[Loss]:
    """Return the losses of one cause in the measured part of the run."""
    return [x for x in run.losses if x.cause is cause and x.time >= run.measured_from]


def _total(run: Run, unit: Unit) -> float:
    time = 1.0 if run.time_unit is TimeUnit.ARRIVAL else run.ended - run.measured_from
    return capacity.milli(run.nodes) * time / unit.per_gpu_time


def _at_end(samples: Sequence[Sample]) -> dict[str, float]:
    return (
        {str(cause): float(milli) for cause, milli in samples[-1].free_by_cause.items()}
        if samples
        else {}
    )


def _over_time(run: Run, samples: Sequence[Sample]) -> dict[str, float]:
    causes = sorted({cause for sample in samples for cause in sample.free_by_cause})
    times = [sample.time for sample in samples]
    return {
        cause: Steps.of(
            times, [s.free_by_cause.get(cause, 0) for s in samples], run.ended
        ).integral(run.measured_from, run.ended)
        for cause in causes
    }
