# SPDX-License-Identifier: Apache-2.0
"""Names and factors of a run's times and GPU-times."""

from dataclasses import dataclass

from gpupack_placement import WHOLE_GPU
from gpupack_simulator.record import TimeUnit

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Unit:
    """The texts of one TimeUnit. `axis` labels a time axis; `key` ends the name of a JSON field."""

    axis: str
    key: str
    short: str
    gpu_time: str
    """Unit of capacity times time."""
    per_gpu_time: float
    """Milli-GPU times the run's unit per unit of GPU-time."""

    @property
    def gpu_time_key(self) -> str:
        """GPU-time as a part of the name of a JSON field."""
        return self.gpu_time.lower().replace("-", "_").replace(" ", "_")


UNITS = {
    TimeUnit.SECOND: Unit(
        "time (s)", "seconds", "s", "GPU-hours", float(WHOLE_GPU * SECONDS_PER_HOUR)
    ),
    TimeUnit.STEP: Unit("time (steps)", "steps", "steps", "GPU-steps", float(WHOLE_GPU)),
    TimeUnit.LIFETIME: Unit(
        "time (mean job lifetimes)", "lifetimes", "lifetimes", "GPU-lifetimes", float(WHOLE_GPU)
    ),
    TimeUnit.ARRIVAL: Unit(
        "jobs arrived", "arrivals", "arrivals", "GPUs at the end", float(WHOLE_GPU)
    ),
}
